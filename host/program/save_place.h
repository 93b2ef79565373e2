/* host/program/save_place.h: what saving beside training takes.
 *
 * A checkpoint that is written while training goes on comes from a copy of what the rank keeps (run/snapshot.h): all
 * of it, for the next step changes all of it at once. What is frozen never changes: where the host sees the device's
 * memory it is read where it lies, and not copied. */
#ifndef WEFT_HOST_PROGRAM_SAVE_PLACE_H
#define WEFT_HOST_PROGRAM_SAVE_PLACE_H

#include "program/plan.h"

/* Bytes of the copy of the parameters, from their region's start on, and of the copy of one optimizer state. */
int64_t weft_save_place_parameters(const weft_plan *plan);
int64_t weft_save_place_state(const weft_plan *plan);
/* Bytes of the whole copy, each part where devices align buffers to. */
int64_t weft_save_place_bytes(const weft_plan *plan);

/* Fills plan->saves and plan->visible as [checkpoint] beside says. With auto: beside where the device has memory of
 * its own, and the copies of all ranks of this machine are at most half of what it has. */
void weft_save_place_decide(weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device);

#endif
