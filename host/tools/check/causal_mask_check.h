/* host/tools/check/causal_mask_check.h: what a place's loss may depend on: the ids of its own document up to it, and
 * nothing else. */
#ifndef WEFT_HOST_TOOLS_CHECK_CAUSAL_MASK_CHECK_H
#define WEFT_HOST_TOOLS_CHECK_CAUSAL_MASK_CHECK_H

#include "tools/check/reference_run.h"

/* Another id at a place changes no loss of an earlier one, of another document or of another row, and a row has its
 * loss at whichever place of the micro-batch it stands. WEFT_E_PLUGIN with a sentence where not so. [main] */
weft_status weft_causal_mask_check(weft_reference_run *played, weft_error *err);

/* A micro-batch's loss and gradients are the same bits after others have been computed, and while another one waits
 * for its backward. beside: another one of the same model. [main] */
weft_status weft_causal_mask_check_history(weft_reference_run *played, weft_reference_run *beside, weft_error *err);

#endif
