/* host/train/shares.h: what other ranks take, planned here.
 *
 * Where replicas share the work, ranks are alike. Where each has segments of its own, one that looks at itself cannot
 * say whether the model is spread well. */
#ifndef WEFT_HOST_TRAIN_SHARES_H
#define WEFT_HOST_TRAIN_SHARES_H

#include "train/engine.h"

/* Fills stage->shares. programs: of all ranks; they get slots. */
weft_status weft_shares_make(const weft_engine *engine, weft_stage *stage, weft_program *const *programs,
                             weft_error *err);

/* What a rank of an engine with shares takes from its device, to the byte. The engine is prepared. */
weft_status weft_share_bytes(weft_engine_bytes *out, const weft_engine *engine, int32_t rank, weft_error *err);

#endif
