/* host/plan/storage.h: in which type each parameter is stored.
 *
 * What is trained is stored in fp32, which is its master, or, with [train] weights = bf16, in bf16 and nothing else. A
 * frozen matrix is stored in the type that is computed in,
 * without a master, where the base's files have it in that type: then it is what they hold, to the bit, and a saved
 * model gives back the same. Where they have it in another one (an fp32 base under bf16), or where there are none (a
 * fresh start), it stays in fp32 beside its compute copy: rounding it for good would change what is saved. Norm gains
 * and biases, which are read in fp32, are stored in it. */
#ifndef WEFT_HOST_PLAN_STORAGE_H
#define WEFT_HOST_PLAN_STORAGE_H

#include "plan/plan.h"

/* Sets the parameters' dtypes; what is trained has been selected, and the layout is not made yet. Files that are not
 * there, or that are malformed, are said where they are loaded; without them all is fp32. */
void weft_storage_choose(weft_plan *plan);

#endif
