/* host/report/bar_line.h: how far a run is, in one line that fits a terminal of any width. */
#ifndef WEFT_HOST_REPORT_BAR_LINE_H
#define WEFT_HOST_REPORT_BAR_LINE_H

#include "base/terminal.h"

#include <stdint.h>

typedef struct weft_bar_line {
    int64_t step, steps;
    double loss;
    double rate;      /* tokens per second */
    double left;      /* seconds */
    const char *what; /* it counts, in words: "row"; NULL: "step" */
} weft_bar_line;

enum { WEFT_BAR_LINE_SIZE = 1024 };

/* In fewer columns than the terminal has, so that no terminal wraps it: step, bar, loss, speed and time left, in words
 * where there is room, shorter where there is less; below some 30 columns what fits. */
void weft_bar_line_write(char out[WEFT_BAR_LINE_SIZE], const weft_bar_line *line, const weft_terminal *terminal);

#endif
