/* host/run/run_instructions.h: what each instruction of a program does, on the engine's device. */
#ifndef WEFT_HOST_RUN_RUN_INSTRUCTIONS_H
#define WEFT_HOST_RUN_RUN_INSTRUCTIONS_H

#include "run/stepper.h"

/* What the device reads from the host's memory in a training pass: COUNT, the optimizer's struct, the micro-batches'
 * first rows. A pass that is
 * replayed has no instruction that would put it there. */
weft_status weft_step_put_numbers(weft_stepper *self, weft_error *err);

/* Sends the first rows of the step's micro-batches, where the model drops elements by them. */
weft_status weft_step_send_first_rows(weft_stepper *self, weft_error *err);

/* One pass over the program of self's stage, with the settings that lie there. */
weft_status weft_step_run_instructions(weft_stepper *self, weft_error *err);
/* Instructions [first, end) of one, a part of its slices (program/slices.h): as they run where those before them
 * have run. */
weft_status weft_step_run_part(weft_stepper *self, int32_t first, int32_t end, weft_error *err);

#endif
