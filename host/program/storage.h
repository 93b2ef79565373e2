/* host/program/storage.h: in which type each parameter is stored.
 *
 * What is trained is stored in fp32, which is its master, or, with [train] weights = bf16, in bf16 and nothing else. A
 * frozen matrix is stored in the type that is computed in,
 * without a master, where the base's files have it in that type: then it is what they hold, to the bit, and a saved
 * model gives back the same. Where they have it in another one (an fp32 base under bf16), or where there are none (a
 * fresh start), it stays in fp32 beside its compute copy: rounding it for good would change what is saved. Norm gains
 * and biases, which are read in fp32, are stored in it.
 *
 * [model] base says more: the frozen linears of the layers are stored in that type for good, whatever the files hold;
 * embeddings, norms, biases and the head stay as they are, and so does what is trained. What the files hold packed
 * stays so, with no key. */
#ifndef WEFT_HOST_PROGRAM_STORAGE_H
#define WEFT_HOST_PROGRAM_STORAGE_H

#include "program/plan.h"

/* Sets the parameters' dtypes; what is trained has been selected, and the layout is not made yet. Files that are not
 * there, or that are malformed, are said where they are loaded; without them nothing is known of what they hold. */
weft_status weft_storage_choose(weft_plan *plan, weft_error *err);

#endif
