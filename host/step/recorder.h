/* host/step/recorder.h: passes that the device has recorded, and replays with one call (weft/capture.h).
 *
 * There is one recording for each program and list of leaf lengths. The first pass of such a list runs event by event;
 * when the list comes again the events are gone through once more, which records what they queue, and from then on a
 * pass is: its leaves are made and put where the recording reads them, COUNT and the optimizer's struct beside, and
 * it is replayed. All that changes from pass to pass lies in that memory, or is told apart by it: clipping, and
 * whether there is a target at all.
 *
 * A pass that somebody listens to (weft profile, --print-values), and one that looks for a number that is not finite,
 * is never a replay. */
#ifndef WEFT_HOST_STEP_RECORDER_H
#define WEFT_HOST_STEP_RECORDER_H

#include "step/stepper.h"

/* *out NULL: nothing is recorded, as [run] replay = no, or as somebody cannot; that is an error under replay = yes. The
 * stepper's order must be open. */
weft_status weft_recorder_open(weft_recorder **out, const weft_stepper *stepper, weft_error *err);
/* The device is at rest. */
void weft_recorder_close(weft_recorder *recorder, const weft_order *order); /* NULL is fine */

/* All that a pass queues, from its first event to the copy of its outcome. */
typedef weft_status weft_queue_pass(weft_stepper *stepper, weft_error *err);

/* Queues a pass over the program of self's stage, whose leaves have been counted: by a recording, or by `queue`. */
weft_status weft_recorder_queue(weft_stepper *self, weft_queue_pass *queue, weft_error *err);

#endif
