/* host/tools/ab/numbers.h: whether an arm computes the same bits as the first, and where not, at which step,
 * micro-batch and unit the two part first.
 *
 * Of each of the first steps are kept a checksum of every micro-batch's gradient of every parameter (run/values.h),
 * the micro-batches' losses, and checksums of parameters and optimizer states after it (run/checksums.h); values are
 * neither kept nor moved. What is asked first is what a step computes first: a micro-batch's loss, its gradients
 * from the last parameter to the first, then what the update has left. */
#ifndef WEFT_HOST_TOOLS_AB_NUMBERS_H
#define WEFT_HOST_TOOLS_AB_NUMBERS_H

#include "tools/ab/arms.h"

/* What the first went through, and room for the arm that is compared. */
typedef struct weft_ab_bits weft_ab_bits;

weft_status weft_ab_bits_create(weft_ab_bits **out, weft_ab_experiment *experiment, weft_error *err);
void weft_ab_bits_destroy(weft_ab_bits *self); /* NULL is fine */

/* Before the first step of arm i, which its steps are then told to. [collective] */
weft_status weft_ab_bits_begin(weft_ab_bits *self, int32_t i, weft_error *err);
/* After its step `step`, from 1 to WEFT_AB_COMPARED. numbers are rank 0's. [collective] */
weft_status weft_ab_bits_step(weft_ab_bits *self, int32_t step, weft_error *err);
/* Nothing is told any longer. */
void weft_ab_bits_end(weft_ab_bits *self);

#endif
