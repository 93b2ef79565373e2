/* host/tools/common/html.h: parts of HTML pages: text, page header, style, bars and charts. */
#ifndef WEFT_HOST_TOOLS_COMMON_HTML_H
#define WEFT_HOST_TOOLS_COMMON_HTML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <weft/base.h>

/* Prints escaped text, with control characters as spaces, so that it cannot end its element or attribute. */
void weft_html_text(FILE *to, const char *text);

/* Prints the start of the document up to the open <main>, with title and style. */
void weft_html_begin(FILE *to, const char *title);
void weft_html_tile(FILE *to, const char *value, const char *about, ...) WEFT_PRINTF(3, 4); /* in <div class=tiles> */

/* Classes k0 to k9 are the colours of parts and runs. */
enum { WEFT_HTML_COLOURS = 10 };

/* ---- stacked bars on one scale ---- */

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

/* ---- line charts as inline SVG, with round axis numbers and the page's colours ---- */

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
