/* host/tools/ab/page_place.h: whether the page of an experiment (comparison_page.h) can be written. */
#ifndef WEFT_HOST_TOOLS_AB_PAGE_PLACE_H
#define WEFT_HOST_TOOLS_AB_PAGE_PLACE_H

#include <weft/base.h>

/* Nothing is left at `path`. */
weft_status weft_ab_page_try(const char *path, weft_error *err);

#endif
