/* host/tools/ab/learning.h: measures learning: each arm trains the same number of steps from its start, once per seed,
 * and validation losses of the same micro-batches are compared (verdict.h).
 *
 * In the timing phase all arms are open, and the first runs more steps. Learning is therefore measured in new training
 * runs, one after the other, after those sessions are closed. */
#ifndef WEFT_HOST_TOOLS_AB_LEARNING_H
#define WEFT_HOST_TOOLS_AB_LEARNING_H

#include "tools/ab/arms.h"

/* checks whether an arm computes the same bits as the first, and finds the first step,
 * micro-batch and unit that differ.
 *
 * For each of the first steps it stores checksums of every micro-batch's gradient of every parameter (run/values.h),
 * the micro-batches' losses, and checksums of parameters and optimizer states after the step
 * (tools/common/checksums.h). Values are neither stored nor sent. Comparisons follow the order of computation: loss,
 * gradients from the last parameter to the first, then updated values. */

/* Checksums of the first arm, and buffers for the compared arm. */
typedef struct weft_ab_bits weft_ab_bits;

weft_ab_bits *weft_ab_bits_create(weft_ab_experiment *experiment);
void weft_ab_bits_destroy(weft_ab_bits *self);

/* Starts recording, before the first step of arm i. [collective] */
weft_status weft_ab_bits_begin(weft_ab_bits *self, int32_t i, weft_error *err);
/* Compares after step `step`, from 1 to WEFT_AB_COMPARED. Results are on rank 0. [collective] */
weft_status weft_ab_bits_step(weft_ab_bits *self, int32_t step, weft_error *err);
/* Stops recording. */
void weft_ab_bits_end(weft_ab_bits *self);

/* Opens the sessions of an experiment, plans and compares them, and starts them. */

/* Opens and plans each arm's session, compares its plan to the first arm's, and loads the weights. [collective] */
weft_status weft_ab_open_arms(weft_ab_experiment *self, weft_error *err);

/* Prefixes an error with the arm, unless the message already names it. Returns err's code. */
weft_status weft_ab_name(const weft_ab_arm *arm, weft_error *err);

/* True if arm i uses the first arm's sequences at each step. */
bool weft_ab_same_batches(const weft_ab_experiment *self, int32_t i);

/* Decides whether to measure, and records the reason if not. The arms must be open. Same on all ranks. [collective] */
weft_status weft_ab_learning_check(weft_ab_experiment *self, const weft_ab_options *options, bool *wanted,
                                   weft_error *err);

/* Measures learning. The arms' sessions must be closed. [collective] */
weft_status weft_ab_learn(weft_ab_experiment *self, const weft_ab_options *options, weft_error *err);

#endif
