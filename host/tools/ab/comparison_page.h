/* host/tools/ab/comparison_page.h: what an experiment came to as one HTML page that needs nothing else, like that of
 * `weft report`. */
#ifndef WEFT_HOST_TOOLS_AB_COMPARISON_PAGE_H
#define WEFT_HOST_TOOLS_AB_COMPARISON_PAGE_H

#include "tools/ab/experiment.h"

/* Replaces the file at `path` in one step. */
weft_status weft_ab_page_save(const weft_ab_experiment *experiment, const char *path, weft_error *err);

#endif
