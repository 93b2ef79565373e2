/* host/tools/common/chart.h: lines over steps, or what else is counted, as inline SVG: axes with round numbers
 * and units, colours from the page's style. */
#ifndef WEFT_HOST_TOOLS_COMMON_CHART_H
#define WEFT_HOST_TOOLS_COMMON_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum weft_series_look {
    WEFT_LOOK_LINE = 0,
    WEFT_LOOK_FAINT = 1, /* behind others: it may leave the chart above and below */
    WEFT_LOOK_DOTS = 2   /* single measurements, with a dotted line between them */
} weft_series_look;

/* Places with a number that is not finite are left out. */
typedef struct weft_series {
    const char *name;
    int colour, look;
    const double *x, *y; /* [n] */
    size_t n;
    bool broad; /* others on top of it may cover it: runs with the same bits do */
} weft_series;

typedef enum weft_chart_unit { WEFT_UNIT_PLAIN = 0, WEFT_UNIT_BYTES = 1, WEFT_UNIT_COUNT = 2 } weft_chart_unit;

typedef struct weft_chart {
    const char *title, *about; /* about: small, behind the title: the unit, or what is drawn */
    const weft_series *series;
    size_t n;
    int unit; /* of the numbers on the left */
    bool from_zero, wide;
    const char *axis; /* what is counted below: "round"; NULL: "step" */
} weft_chart;

/* A card of the page; nothing where no series has a place. */
void weft_chart_print(const weft_chart *self, FILE *to);

#endif
