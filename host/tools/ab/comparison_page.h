/* host/tools/ab/comparison_page.h: results of an experiment as one self-contained HTML page. */
#ifndef WEFT_HOST_TOOLS_AB_COMPARISON_PAGE_H
#define WEFT_HOST_TOOLS_AB_COMPARISON_PAGE_H

#include "tools/ab/experiment.h"

/* Replaces the file at `path` atomically. */
weft_status weft_ab_page_save(const weft_ab_experiment *experiment, const char *path, weft_error *err);

#endif
