/* host/run/step.h: one optimizer step, or one micro-batch of evaluation: a pass over a program and what it came to. */
#ifndef WEFT_HOST_RUN_STEP_H
#define WEFT_HOST_RUN_STEP_H

#include "run/stepper.h"

/* data may be NULL where no micro-batch is ever asked for. The engine must be allocated. */
weft_status weft_stepper_create(weft_stepper **out, weft_engine *engine, const weft_data_plugin *data_plugin,
                                weft_data *data, weft_error *err);
void weft_stepper_destroy(weft_stepper *stepper); /* NULL is fine */

/* Optimizer step `step` (from 1) with learning rate lr, clip (0: none): runs the training program once. A loss or
 * gradient that is not finite is WEFT_E_NUMERIC, named with step and segment. */
weft_status weft_stepper_train(weft_stepper *stepper, weft_step_result *out, uint64_t step, double lr, double clip,
                               weft_error *err);

/* What a training step does, with micro-batches of the largest length that nobody has asked for: of a device in a
 * dry run (weft/dry_run.h), which does nothing of it. */
weft_status weft_stepper_rehearse(weft_stepper *stepper, weft_error *err);

/* One micro-batch per replica, from first_row of a split on: their targets, and their losses, added to out->loss_sum
 * in their order, so that the sum over many passes is the same for any number of replicas. [collective] */
weft_status weft_stepper_evaluate(weft_stepper *stepper, weft_step_result *out, int32_t split, uint64_t first_row,
                                  weft_error *err);

#endif
