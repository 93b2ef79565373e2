/* host/run/best.h: checkpoints/best, a link to the checkpoint of the lowest evaluation loss, so that
 * `model.path=out/checkpoints/best` needs no number. */
#ifndef WEFT_HOST_RUN_BEST_H
#define WEFT_HOST_RUN_BEST_H

#include "run/checkpoint.h"

/* directory/best leads to step-BEST_STEP, in one step whatever it led to before. Where that checkpoint is not there
 * (keep_best = no has let it go, or nothing was evaluated: best_step 0) there is no link. A file system without links
 * gets a warning: the run does not depend on it. Something else of that name is left as it is, and told. */
weft_status weft_best_point(const char *directory, uint64_t best_step, const weft_host *host, weft_error *err);

#endif
