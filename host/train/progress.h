/* host/train/progress.h: progress output: one line that is rewritten on a terminal, separate lines in a file. */
#ifndef WEFT_HOST_TRAIN_PROGRESS_H
#define WEFT_HOST_TRAIN_PROGRESS_H

#include "base/message.h"

#include <stdbool.h>
#include <stdint.h>
#include <weft/base.h>

/* Progress of a run in one line that fits a terminal of any width. */

typedef struct weft_bar_line {
    int64_t step, steps;
    double loss;
    double rate;      /* tokens per second */
    double left;      /* seconds */
    const char *what; /* name of the counted unit: "seq"; NULL: "step" */
} weft_bar_line;

enum { WEFT_BAR_LINE_SIZE = 1024 };

/* Writes step, bar, loss, speed and remaining time in fewer columns than the terminal has, so that no terminal wraps
 * the line. Labels are shortened on narrow terminals; below about 30 columns the line is truncated. */
void weft_bar_line_write(char out[WEFT_BAR_LINE_SIZE], const weft_bar_line *line, const weft_terminal *terminal);

typedef struct weft_progress weft_progress;

/* Creates the output on stdout. quiet: no output. */
weft_progress *weft_progress_create(int64_t steps, bool quiet);
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
