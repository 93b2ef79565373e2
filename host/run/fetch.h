/* host/run/fetch.h: what a rank keeps, as regions that all ranks can read. */
#ifndef WEFT_HOST_RUN_FETCH_H
#define WEFT_HOST_RUN_FETCH_H

#include "run/state.h"

/* What this rank keeps of the parameters, and of an optimizer state, as regions. Reading what it does not keep is
 * collective. The engine is allocated. */
weft_region weft_engine_parameters(const weft_engine *engine);
weft_region weft_engine_state(const weft_engine *engine, int64_t state);

#endif
