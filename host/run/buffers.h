/* host/run/buffers.h: the device memory of an engine: taking it, giving it back. */
#ifndef WEFT_HOST_RUN_BUFFERS_H
#define WEFT_HOST_RUN_BUFFERS_H

#include "run/state.h"

/* The groups of all cuts, in the order of the units, so far as they are not there. [collective] */
weft_status weft_engine_meet(weft_engine *engine, weft_error *err);
/* weft_engine_meet; then takes the planned memory, a buffer for each line of the plan, and fills the fixed part of it.
 * [collective] */
weft_status weft_engine_allocate(weft_engine *engine, weft_error *err);
/* The same of ranks that do not meet. */
weft_status weft_engine_take_memory(weft_engine *engine, weft_error *err);
/* Parameters from [model] path, or freshly initialised, as the configuration says, the compute copy of them, and
 * optimizer states of zeros. */
weft_status weft_engine_load(weft_engine *engine, weft_error *err);
/* Gives back all that allocate took. */
void weft_engine_release(weft_engine *engine);

#endif
