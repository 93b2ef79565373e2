/* host/report/bar_line.h: progress of a run in one line that fits a terminal of any width. */
#ifndef WEFT_HOST_REPORT_BAR_LINE_H
#define WEFT_HOST_REPORT_BAR_LINE_H

#include "base/terminal.h"

#include <stdint.h>

typedef struct weft_bar_line {
    int64_t step, steps;
    double loss;
    double rate;      /* tokens per second */
    double left;      /* seconds */
    const char *what; /* name of the counted unit: "row"; NULL: "step" */
} weft_bar_line;

enum { WEFT_BAR_LINE_SIZE = 1024 };

/* Writes step, bar, loss, speed and remaining time in fewer columns than the terminal has, so that no terminal wraps
 * the line. Labels are shortened on narrow terminals; below about 30 columns the line is truncated. */
void weft_bar_line_write(char out[WEFT_BAR_LINE_SIZE], const weft_bar_line *line, const weft_terminal *terminal);

#endif
