/* host/train/coherence.h: before anything is trained, the ranks prove to each other that they are about to do the same:
 * the same host, plugin files, configuration, device and data, and the same programs of all ranks. */
#ifndef WEFT_HOST_TRAIN_COHERENCE_H
#define WEFT_HOST_TRAIN_COHERENCE_H

#include "train/engine.h"

/* Each takes the status of what went before on this rank, so that a failure on one rank alone ends all. An engine that
 * has a seat on somebody else's platform compares nothing. [collective] */
weft_status weft_coherence_run(const weft_engine *engine, weft_status status, weft_error *err);
weft_status weft_coherence_data(const weft_engine *engine, uint64_t fingerprint, weft_status status, weft_error *err);
weft_status weft_coherence_programs(const weft_engine *engine, weft_status status, weft_error *err);

#endif
