/* host/tools/check/accumulate_shim.h: a model whose own operators are each computed twice from the same values, and
 * make three quarters and a quarter of what one makes: the sum is the same, and the inputs have two readers, so that
 * backward is asked to add to what is there (accumulate) whether the model's own forward does that or not. */
#ifndef WEFT_HOST_TOOLS_CHECK_ACCUMULATE_SHIM_H
#define WEFT_HOST_TOOLS_CHECK_ACCUMULATE_SHIM_H

#include "plugin/plugin.h"

/* A model plugin with such operators; one a process, which lives as long. NULL: no memory. [main] */
const weft_loaded *weft_accumulate_shim(const weft_loaded *loaded);

#endif
