/* host/tools/check/gradient_check.h: whether the gradients that a model's backward gives are the slopes of its loss. */
#ifndef WEFT_HOST_TOOLS_CHECK_GRADIENT_CHECK_H
#define WEFT_HOST_TOOLS_CHECK_GRADIENT_CHECK_H

#include "tools/check/reference_run.h"

/* Of each parameter that is trained, along its gradient and along directions that are drawn. WEFT_E_PLUGIN with a
 * sentence where one is another than the loss has, or is no number. [main] */
weft_status weft_gradient_check(weft_reference_run *played, weft_error *err);

#endif
