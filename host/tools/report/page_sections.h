/* host/tools/report/page_sections.h: writes runs as one self-contained HTML page without scripts. */
#ifndef WEFT_HOST_TOOLS_REPORT_PAGE_SECTIONS_H
#define WEFT_HOST_TOOLS_REPORT_PAGE_SECTIONS_H

#include "tools/report/comparison.h"

/* Writes runs as one self-contained HTML page without scripts. */

/* Replaces the file at `path` atomically. */
weft_status weft_page_save(const weft_comparison *runs, const char *path, weft_error *err);

#endif
