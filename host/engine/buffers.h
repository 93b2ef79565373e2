/* host/engine/buffers.h: the device memory of an engine: taking it, giving it back. */
#ifndef WEFT_HOST_ENGINE_BUFFERS_H
#define WEFT_HOST_ENGINE_BUFFERS_H

#include "engine/engine.h"

/* Gives back all that allocate took. */
void weft_engine_release(weft_engine *engine);

#endif
