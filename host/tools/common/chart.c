/* host/tools/common/chart.c: see chart.h. */
#include "tools/common/chart.h"

#include "base/units.h"
#include "tools/common/html.h"

#include <math.h>

/* Dimensions of the drawing; lines are drawn inside the margins. */
enum { HIGH = 232, LEFT = 58, RIGHT = 14, TOP = 10, BOTTOM = 30, NARROW = 520, WIDE = 1080, MOST_POINTS = 700 };

typedef struct frame {
    FILE *to;
    double width, x0, x1, y0, y1; /* y0, x0: values at the bottom and at the left */
} frame;

/* ---- ranges and ticks ---- */

static void widen(double *low, double *high, double value) {
    if (!isfinite(value)) return;
    if (!(*low <= value)) *low = value; /* true if low is NaN */
    if (!(*high >= value)) *high = value;
}

/* Finds the range of all values; faint lines count only without other lines. False: no values. */
static bool find_range(const weft_chart *self, frame *out) {
    double low = (double)NAN, high = (double)NAN;
    out->x0 = out->x1 = (double)NAN;
    for (int faint = 0; faint < 2 && isnan(low); faint++)
        for (size_t s = 0; s < self->n; s++)
            for (size_t i = 0; i < self->series[s].n; i++) {
                const weft_series *series = &self->series[s];
                if ((series->look == WEFT_LOOK_FAINT) != (faint == 1) || !isfinite(series->y[i])) continue;
                widen(&low, &high, series->y[i]);
                widen(&out->x0, &out->x1, series->x[i]);
            }
    if (isnan(low) || isnan(out->x0)) return false;
    if (self->from_zero && low > 0.0) low = 0.0;
    if (high - low <= 1e-12 * fabs(high)) high = low + (low == 0.0 ? 1.0 : fabs(low) * 0.1);
    out->y0 = low == 0.0 ? 0.0 : low - 0.06 * (high - low);
    out->y1 = high + 0.06 * (high - low);
    if (out->x1 <= out->x0) out->x1 = out->x0 + 1.0;
    return true;
}

/* Returns the tick distance for about n ticks: 1, 2 or 5 times a power of ten, or a power of two. */
static double tick_distance(double range, int n, bool binary) {
    const double rough = range / n;
    const double power = binary ? exp2(floor(log2(rough))) : pow(10.0, floor(log10(rough)));
    if (binary) return rough > 1.5 * power ? 2.0 * power : power;
    if (rough < 1.5 * power) return power;
    if (rough < 3.5 * power) return 2.0 * power;
    return rough < 7.5 * power ? 5.0 * power : 10.0 * power;
}

static double place_x(const frame *self, double x) {
    return LEFT + (x - self->x0) / (self->x1 - self->x0) * (self->width - LEFT - RIGHT);
}

static double place_y(const frame *self, double y) {
    return TOP + (self->y1 - y) / (self->y1 - self->y0) * (HIGH - TOP - BOTTOM);
}

static void print_number(char out[WEFT_UNIT_SIZE], double value, double distance, int unit) {
    const int digits = distance >= 1.0 ? 0 : (int)ceil(-log10(distance) - 1e-9);
    if (fabs(value) < distance / 2) (void)snprintf(out, WEFT_UNIT_SIZE, "0");
    else if (unit == WEFT_UNIT_BYTES) (void)weft_unit_bytes(out, (int64_t)value);
    else if (unit == WEFT_UNIT_COUNT && fabs(value) < 9e15) (void)weft_unit_count(out, (int64_t)value);
    else if (digits <= 3) (void)snprintf(out, WEFT_UNIT_SIZE, "%.*f", digits, value);
    else (void)snprintf(out, WEFT_UNIT_SIZE, "%.3g", value);
}

static void print_axes(const frame *self, int unit, const char *axis) {
    const double dy = tick_distance(self->y1 - self->y0, 4, unit == WEFT_UNIT_BYTES);
    const double span = self->x1 - self->x0, dx = fmax(1.0, tick_distance(span, self->width > NARROW ? 10 : 5, false));
    char text[WEFT_UNIT_SIZE];
    for (double y = ceil(self->y0 / dy) * dy; y <= self->y1; y += dy) {
        print_number(text, y, dy, unit);
        (void)fprintf(self->to,
                      "<line class=grid x1=%d x2=%.0f y1=%.1f y2=%.1f /><text x=%d y=%.1f text-anchor=end>%s</text>",
                      LEFT, self->width - RIGHT, place_y(self, y), place_y(self, y), LEFT - 8, place_y(self, y) + 4.0,
                      text);
    }
    for (double x = ceil(self->x0 / dx) * dx; x <= self->x1; x += dx) {
        if (place_x(self, x) > self->width - 64.0) continue; /* overlaps the axis name */
        print_number(text, x, dx, WEFT_UNIT_COUNT);
        (void)fprintf(self->to, "<text x=%.1f y=%d text-anchor=middle>%s</text>", place_x(self, x), HIGH - 10, text);
    }
    (void)fprintf(self->to, "<text x=%.0f y=%d text-anchor=end>%s</text>", self->width - RIGHT, HIGH - 10, axis);
    (void)fprintf(self->to, "<line class=axis x1=%d x2=%.0f y1=%d y2=%d />\n", LEFT, self->width - RIGHT, HIGH - BOTTOM,
                  HIGH - BOTTOM);
}

/* ---- lines ---- */

/* Prints a point for each of MOST_POINTS sections: both extremes of faint lines, to show spikes, else the mean. */
static void print_piece(const frame *self, const weft_series *series, size_t from, size_t to, bool *pen) {
    double low = (double)NAN, high = (double)NAN, sum = 0.0;
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        if (!isfinite(series->y[i]) || !isfinite(series->x[i])) continue;
        widen(&low, &high, series->y[i]);
        sum += series->y[i];
        n++;
    }
    if (n == 0) {
        *pen = false; /* gap */
        return;
    }
    if (series->look != WEFT_LOOK_FAINT || n == 1) low = high = sum / (double)n;
    (void)fprintf(self->to, "%c%.1f %.1f", *pen ? 'L' : 'M', place_x(self, series->x[to - 1]), place_y(self, low));
    if (high > low) (void)fprintf(self->to, "L%.1f %.1f", place_x(self, series->x[to - 1]), place_y(self, high));
    *pen = true;
}

static void print_line(const frame *self, const weft_series *series) {
    static const char *const classes[] = {"line", "faint", "dash"};
    const size_t pieces = series->n > MOST_POINTS ? MOST_POINTS : series->n;
    bool pen = false;
    (void)fprintf(self->to, "<path class=\"%s%s k%d\" d=\"", classes[series->look], series->broad ? " broad" : "",
                  series->colour % WEFT_HTML_COLOURS);
    for (size_t i = 0; i < pieces; i++)
        print_piece(self, series, i * series->n / pieces, (i + 1) * series->n / pieces, &pen);
    (void)fputs("\"/>\n", self->to);
}

/* Prints dots with tooltips. */
static void print_dots(const frame *self, const weft_series *series, const char *axis) {
    for (size_t i = 0; i < series->n && series->n <= MOST_POINTS; i++) {
        if (!isfinite(series->y[i])) continue;
        (void)fprintf(self->to, "<circle class=\"dot k%d\" r=3.5 cx=%.1f cy=%.1f><title>",
                      series->colour % WEFT_HTML_COLOURS, place_x(self, series->x[i]), place_y(self, series->y[i]));
        weft_html_text(self->to, series->name);
        (void)fprintf(self->to, ", %s %.0f: %.5g</title></circle>\n", axis, series->x[i], series->y[i]);
    }
}

static void print_legend(const weft_chart *self, FILE *to) {
    if (self->n < 2) return;
    (void)fputs("<ul class=legend>", to);
    for (size_t s = 0; s < self->n; s++) {
        const weft_series *series = &self->series[s];
        if (series->look == WEFT_LOOK_FAINT || series->n == 0 || (s > 0 && series->name == series[-1].name)) continue;
        (void)fprintf(to, "<li><i class=\"k%d%s\"></i>", series->colour % WEFT_HTML_COLOURS,
                      series->look == WEFT_LOOK_DOTS ? " ring" : "");
        weft_html_text(to, series->name);
        (void)fputs("</li>", to);
    }
    (void)fputs("</ul>", to);
}

void weft_chart_print(const weft_chart *self, FILE *to) {
    frame at = {.to = to, .width = self->wide ? WIDE : NARROW};
    const char *axis = self->axis != NULL ? self->axis : "step";
    if (!find_range(self, &at)) return;
    (void)fprintf(to, "<figure class=\"card%s\" style=\"margin:0\"><h3>", self->wide ? " wide" : "");
    weft_html_text(to, self->title);
    (void)fputs(" <small>", to);
    weft_html_text(to, self->about);
    (void)fprintf(to, "</small></h3>\n<svg viewBox=\"0 0 %.0f %d\" role=img aria-label=\"", at.width, HIGH);
    weft_html_text(to, self->title);
    (void)fputs("\">", to);
    print_axes(&at, self->unit, axis);
    /* A nested svg element clips lines at the frame. */
    (void)fprintf(to, "<svg x=%d y=0 width=%.0f height=%d viewBox=\"%d 0 %.0f %d\">\n", LEFT - 6,
                  at.width - LEFT - RIGHT + 12.0, HIGH - BOTTOM + 5, LEFT - 6, at.width - LEFT - RIGHT + 12.0,
                  HIGH - BOTTOM + 5);
    for (size_t s = 0; s < self->n; s++) print_line(&at, &self->series[s]);
    for (size_t s = 0; s < self->n; s++)
        if (self->series[s].look == WEFT_LOOK_DOTS) print_dots(&at, &self->series[s], axis);
    (void)fputs("</svg></svg>", to);
    print_legend(self, to);
    (void)fputs("</figure>\n", to);
}
