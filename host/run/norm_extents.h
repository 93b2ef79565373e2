/* host/run/norm_extents.h: which stretches of the gradients the kernels of NORM sum, as tables that lie on the
 * device for the whole run, so that NORM is a few calls however many tensors and cells there are. */
#ifndef WEFT_HOST_RUN_NORM_EXTENTS_H
#define WEFT_HOST_RUN_NORM_EXTENTS_H

#include "run/state.h"

/* Takes the device's memory for the tables and fills them. */
weft_status weft_norm_extents_take(weft_engine *engine, weft_error *err);

#endif
