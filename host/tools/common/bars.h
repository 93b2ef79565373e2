/* host/tools/common/bars.h: stacked bars on one scale, as HTML. */
#ifndef WEFT_HOST_TOOLS_COMMON_BARS_H
#define WEFT_HOST_TOOLS_COMMON_BARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { WEFT_MAX_PARTS = 10 };

typedef struct weft_bar {
    char name[160], total[80];
    double parts[WEFT_MAX_PARTS];
    double mark; /* position of a marker line; NaN: no marker */
} weft_bar;

typedef struct weft_bars {
    const char *const *names; /* [n_parts] */
    const int *colours;
    int n_parts;
    const char *mark_name; /* name of the marker; NULL: no markers */
    bool bytes;            /* true: bytes; false: seconds */
} weft_bars;

/* Prints bars scaled to the longest one or the largest marker, and a legend of the parts that occur. */
void weft_bars_print(const weft_bars *self, const weft_bar *bars, size_t n, FILE *to);

#endif
