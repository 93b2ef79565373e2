/* host/run/p2p_channels.h: the ranks that an engine's programs send to are connected before the first step. */
#ifndef WEFT_HOST_RUN_P2P_CHANNELS_H
#define WEFT_HOST_RUN_P2P_CHANNELS_H

#include "run/engine.h"

/* Every rank of the engine calls. [collective] */
weft_status weft_step_connect(const weft_engine *engine, weft_error *err);

#endif
