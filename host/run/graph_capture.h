/* host/run/graph_capture.h: passes that the device has recorded, and replays with one call (weft/capture.h).
 *
 * There is one recording for each slice of a program (program/slices.h) and list of lengths of its micro-batches
 * (graph_cache.h); a program that cannot be cut, or whose micro-batches have one length, is one slice. The first pass
 * in which a slice has some list runs instruction by instruction. When all of a pass's lists have come before, the
 * instructions of those that are not recorded yet are gone through once more, which records what they queue; from then
 * on a pass is: its micro-batches are made and put where the recordings read them, COUNT and the optimizer's struct
 * beside, and they are replayed one after another. All that changes from pass to pass lies in that memory, or is told
 * apart by it: clipping, and whether there is a target at all.
 *
 * Where lists come by turns, more than are kept, a pass is never replayed: the run is told once, or ends where replay =
 * yes has promised something else.
 *
 * A pass that somebody listens to (weft profile, --print-values), and one that looks for a number that is not finite,
 * is never a replay. */
#ifndef WEFT_HOST_RUN_GRAPH_CAPTURE_H
#define WEFT_HOST_RUN_GRAPH_CAPTURE_H

#include "run/stepper.h"

/* *out NULL: nothing is recorded, as [run] replay = no, or as somebody cannot; that is an error under replay = yes. The
 * stepper's order must be open. */
weft_status weft_graph_capture_open(weft_graph_capture **out, const weft_stepper *stepper, weft_error *err);
/* The device is at rest. */
void weft_graph_capture_close(weft_graph_capture *graph_capture, const weft_stream_sync *order); /* NULL is fine */

/* What a pass queues with the instructions [first, end): with the last one the copy of its outcome as well. */
typedef weft_status weft_queue_part(weft_stepper *stepper, int32_t first, int32_t end, weft_error *err);

/* Queues a pass over the program of self's stage, whose micro-batches have been counted: by recordings, or by
 * `queue`. */
weft_status weft_graph_capture_queue(weft_stepper *self, weft_queue_part *queue, weft_error *err);

#endif
