/* host/tools/common/chart.h: line charts as inline SVG, with round axis numbers and the page's colours. */
#ifndef WEFT_HOST_TOOLS_COMMON_CHART_H
#define WEFT_HOST_TOOLS_COMMON_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum weft_series_look {
    WEFT_LOOK_LINE = 0,
    WEFT_LOOK_FAINT = 1, /* background line, which may exceed the chart's range */
    WEFT_LOOK_DOTS = 2   /* single measurements, with a dotted line between them */
} weft_series_look;

/* Points with non-finite numbers are skipped. */
typedef struct weft_series {
    const char *name;
    int colour, look;
    const double *x, *y; /* [n] */
    size_t n;
    bool broad; /* drawn wider, so that it stays visible under identical lines */
} weft_series;

typedef enum weft_chart_unit { WEFT_UNIT_PLAIN = 0, WEFT_UNIT_BYTES = 1, WEFT_UNIT_COUNT = 2 } weft_chart_unit;

typedef struct weft_chart {
    const char *title, *about; /* about: small text after the title, such as the unit */
    const weft_series *series;
    size_t n;
    int unit; /* of the y axis */
    bool from_zero, wide;
    const char *axis; /* name of the x axis: "round"; NULL: "step" */
} weft_chart;

/* Prints a chart as a card of the page. Prints no output if no series has a point. */
void weft_chart_print(const weft_chart *self, FILE *to);

#endif
