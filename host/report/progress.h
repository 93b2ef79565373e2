/* host/report/progress.h: progress output: one line that is rewritten on a terminal, separate lines in a file. */
#ifndef WEFT_HOST_REPORT_PROGRESS_H
#define WEFT_HOST_REPORT_PROGRESS_H

#include <stdbool.h>
#include <weft/base.h>

typedef struct weft_progress weft_progress;

/* Creates the output on stdout. quiet: no output. */
weft_status weft_progress_create(weft_progress **out, int64_t steps, bool quiet, weft_error *err);
void weft_progress_destroy(weft_progress *progress); /* NULL is fine */

/* Loss is the mean over `tokens` target tokens. */
typedef struct weft_progress_row {
    double loss, lr, norm, seconds; /* norm NaN: the step was skipped */
    int64_t tokens;
} weft_progress_row;

void weft_progress_step(weft_progress *progress, int64_t step, const weft_progress_row *row);
void weft_progress_evaluation(weft_progress *progress, int64_t step, double loss, double perplexity);
/* Prints a separate line. */
void weft_progress_line(weft_progress *progress, const char *format, ...) WEFT_PRINTF(2, 3);
/* Ends the rewritten line. */
void weft_progress_end(weft_progress *progress);

#endif
