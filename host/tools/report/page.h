/* host/tools/report/page.h: one or several runs as one HTML page that needs nothing else: style and drawings are in
 * it, no script, nothing is fetched. */
#ifndef WEFT_HOST_TOOLS_REPORT_PAGE_H
#define WEFT_HOST_TOOLS_REPORT_PAGE_H

#include "tools/report/comparison.h"

/* Replaces the file at `path` in one step. */
weft_status weft_page_save(const weft_comparison *runs, const char *path, weft_error *err);

#endif
