/* host/program/save_place.h: memory of asynchronous checkpoints.
 *
 * An asynchronous checkpoint is written from a copy of the rank's state (run/snapshot.h). The copy is complete,
 * because the next step changes all of the state at once. Frozen parameters never change: they are not copied if the
 * host sees the device's memory. */
#ifndef WEFT_HOST_PROGRAM_SAVE_PLACE_H
#define WEFT_HOST_PROGRAM_SAVE_PLACE_H

#include "program/plan.h"

/* Return the bytes of the copy of the parameters, from their region's start, and of one optimizer state. */
int64_t weft_save_place_parameters(const weft_plan *plan);
int64_t weft_save_place_state(const weft_plan *plan);
/* Returns the bytes of the complete copy, with each part at the alignment of device buffers. */
int64_t weft_save_place_bytes(const weft_plan *plan);

/* Sets plan->saves and plan->visible from [checkpoint] beside. With auto, checkpoints are asynchronous if the device
 * has its own memory and the copies of all ranks of this machine need at most half of the machine's memory. */
void weft_save_place_decide(weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device);

#endif
