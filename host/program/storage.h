/* host/program/storage.h: the storage type of each parameter.
 *
 * Trained parameters are stored as fp32 masters, or only in bf16 with [train] weights = bf16. A frozen matrix is stored
 * in the compute type without a master if the base's files have it in that type; a saved model is then bit-identical.
 * If the files have another type (an fp32 base under bf16), or if there are no files (a fresh start), it is stored in
 * fp32 with a compute copy. Permanent rounding would change the saved model. Norm gains and biases are read in fp32 and
 * stored in fp32.
 *
 * [model] base overrides this for the frozen linears of the layers: they are stored in its type, regardless of the
 * files. Embeddings, norms, biases, the head and trained parameters are unaffected. Packed tensors in the files stay
 * packed without a key. */
#ifndef WEFT_HOST_PROGRAM_STORAGE_H
#define WEFT_HOST_PROGRAM_STORAGE_H

#include "program/plan.h"

/* Sets the parameters' dtypes, after the selection of trained parameters and before the layout. Missing or malformed
 * files are treated as unknown here; the loader reports them. */
weft_status weft_storage_choose(weft_plan *plan, weft_error *err);

#endif
