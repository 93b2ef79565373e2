/* host/run/run_events.h: what each event of a program does, on the engine's device. */
#ifndef WEFT_HOST_RUN_RUN_EVENTS_H
#define WEFT_HOST_RUN_RUN_EVENTS_H

#include "run/stepper.h"

/* What the device reads from the host's memory in a training pass: COUNT, the optimizer's struct, the leaves'
 * first rows. A pass that is
 * replayed has no event that would put it there. */
weft_status weft_step_put_numbers(weft_stepper *self, weft_error *err);

/* Sends the first rows of the step's leaves, where the model drops elements by them. */
weft_status weft_step_send_first_rows(weft_stepper *self, weft_error *err);

/* One pass over the program of self's stage, with the settings that lie there. */
weft_status weft_step_run_events(weft_stepper *self, weft_error *err);
/* Events [first, end) of one, a part of its slices (program/slices.h): as they run where those before them have run. */
weft_status weft_step_run_part(weft_stepper *self, int32_t first, int32_t end, weft_error *err);

#endif
