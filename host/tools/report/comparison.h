/* host/tools/report/comparison.h: runs side by side: what they took and came to, and in what they were told to
 * differ. */
#ifndef WEFT_HOST_TOOLS_REPORT_COMPARISON_H
#define WEFT_HOST_TOOLS_REPORT_COMPARISON_H

#include "tools/report/digest.h"
#include "tools/report/sheet.h"

typedef struct weft_comparison {
    const weft_past_run *runs;
    size_t n;
    weft_digest *digests; /* [n]; factors are relative to the first */
    char (*names)[128];   /* [n] as short as they stay apart */
} weft_comparison;

/* runs must outlive it. To be freed also after a failure. */
weft_status weft_comparison_make(weft_comparison *out, const weft_past_run *runs, size_t n, weft_error *err);
void weft_comparison_free(weft_comparison *self);

/* The scaling table: a row per run, or with `upright` a column per run, which suits a narrow place. Filled sheets are
 * the caller's to free. */
void weft_comparison_scaling(const weft_comparison *self, weft_sheet *out, bool upright);
/* A row per run of bare numbers: seconds, bytes, counts; what is not known is empty. */
void weft_comparison_numbers(const weft_comparison *self, weft_sheet *out);
/* A row for each key of the configuration that is not alike in all of them; the head alone where all are. Keys that say
 * where results lie are left out. */
void weft_comparison_differences(const weft_comparison *self, weft_sheet *out);

/* The value of a key of a recorded configuration as text; false: it is not there. source: may be NULL. */
bool weft_past_config(const weft_past_run *run, const char *key, char *out, size_t size, const char **source);

#endif
