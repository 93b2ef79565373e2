/* host/tools/check/sight.h: what a place's loss may depend on: the ids of its own document up to it, and nothing
 * else. */
#ifndef WEFT_HOST_TOOLS_CHECK_SIGHT_H
#define WEFT_HOST_TOOLS_CHECK_SIGHT_H

#include "tools/check/played.h"

/* Another id at a place changes no loss of an earlier one, of another document or of another row, and a row has its
 * loss at whichever place of the leaf it stands. WEFT_E_PLUGIN with a sentence where not so. [main] */
weft_status weft_sight_judge(weft_played *played, weft_error *err);

/* A leaf's loss and gradients are the same bits after others have been computed, and while another one waits for its
 * backward. beside: another one of the same model. [main] */
weft_status weft_sight_judge_history(weft_played *played, weft_played *beside, weft_error *err);

#endif
