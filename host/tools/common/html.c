/* host/tools/common/html.c: see html.h. */
#include "tools/common/html.h"

#include "base/units.h"

#include <math.h>

void weft_html_text(FILE *to, const char *text) {
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        switch (c) {
        case '&': (void)fputs("&amp;", to); break;
        case '<': (void)fputs("&lt;", to); break;
        case '>': (void)fputs("&gt;", to); break;
        case '"': (void)fputs("&quot;", to); break;
        case '\'': (void)fputs("&#39;", to); break;
        default: (void)fputc(c < 0x20 || c == 0x7f ? ' ' : c, to);
        }
    }
}

/* Style sheet: one or several rules per line. The ten colours are distinguishable on white and on near black. */
static const char *const style[] = {
    ":root{color-scheme:light dark;--ground:#fcfcfb;--card:#fff;--ink:#1b1d21;--soft:#5c626d;--line:#e4e5e8;"
    "--grid:#ececef;--k0:#3b63c9;--k1:#e2a20f;--k2:#e5604a;--k3:#4fb3a0;--k4:#3c9a4e;--k5:#e0709f;--k6:#9459e0;"
    "--k7:#7fa8ec;--k8:#9c6b4e;--k9:#a3a7af}\n",
    "@media(prefers-color-scheme:dark){:root{--ground:#131418;--card:#1b1d22;--ink:#e9eaed;--soft:#9ba1ac;"
    "--line:#2c2f36;--grid:#282b31;--k0:#6f92f0;--k1:#f0b93a;--k2:#ff8470;--k3:#6cc5b0;--k4:#5fbf70;"
    "--k5:#f192b8;--k6:#b083f5;--k7:#a3c3fa;--k8:#bb8a6d;--k9:#7d828c}}\n",
    "*{box-sizing:border-box}\n",
    "body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 Inter,system-ui,-apple-system,"
    "'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;font-variant-numeric:tabular-nums;"
    "-webkit-text-size-adjust:100%}\n",
    "main{max-width:1120px;margin:0 auto;padding:40px 24px 64px}\n",
    "h1{font-size:30px;line-height:1.2;letter-spacing:-.02em;margin:0 0 6px;font-weight:650;"
    "overflow-wrap:anywhere}\n",
    "h2{font-size:19px;letter-spacing:-.01em;margin:44px 0 14px;font-weight:620}\n",
    "h3{font-size:14px;margin:0 0 8px;font-weight:600}h3 small,h2 small{font-weight:400;color:var(--soft);"
    "font-size:13px;margin-left:6px;letter-spacing:0}\n",
    "p{margin:0 0 10px}.soft{color:var(--soft)}.mark{color:var(--soft);font-size:13px;margin-bottom:18px}\n",
    ".tiles{display:flex;flex-wrap:wrap;gap:1px;background:var(--line);border:1px solid var(--line);"
    "border-radius:12px;overflow:hidden;margin:26px 0 0}\n",
    ".tile{flex:1 1 190px;background:var(--card);padding:14px 18px}.tile "
    "b{display:block;font-size:22px;font-weight:600;"
    "letter-spacing:-.02em;white-space:nowrap}.tile span{display:block;color:var(--soft);font-size:13px}\n",
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:18px}\n",
    ".card{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:16px 18px;"
    "min-width:0}\n",
    ".wide{grid-column:1/-1}svg{display:block;width:100%;height:auto;font:12px Inter,system-ui,sans-serif}\n",
    "svg text{fill:var(--soft)}.grid{stroke:var(--grid);stroke-width:1}.axis{stroke:var(--line);stroke-width:1}"
    "\n",
    ".line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}\n",
    ".broad{stroke-width:4.5}\n",
    ".faint{fill:none;stroke:currentColor;stroke-width:1;opacity:.28;stroke-linejoin:round}\n",
    ".dash{fill:none;stroke:currentColor;stroke-width:1.5;stroke-dasharray:2 4;stroke-linecap:round}\n",
    ".dot{fill:var(--card);stroke:currentColor;stroke-width:2}\n",
    ".legend{display:flex;flex-wrap:wrap;gap:4px 16px;color:var(--soft);font-size:13px;margin:8px 0 0;"
    "padding:0;list-style:none}.legend i,th i{display:inline-block;width:10px;height:10px;border-radius:3px;"
    "margin-right:6px;background:currentColor}.legend i.ring{background:none;border:2px solid currentColor;"
    "border-radius:50%}\n",
    ".bars{display:grid;grid-template-columns:max-content 1fr max-content;gap:8px 14px;align-items:center;"
    "font-size:14px}\n",
    ".bars>span:nth-child(3n+1){max-width:240px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}\n",
    ".bars>span:nth-child(3n){text-align:right;color:var(--soft);white-space:nowrap}\n",
    ".bar{position:relative;display:flex;height:20px;border-radius:5px;background:var(--grid)}\n",
    ".bar u{display:block;height:100%;background:currentColor;min-width:0}.bar u:first-child{"
    "border-radius:5px 0 0 5px}\n",
    ".bar em{position:absolute;top:-3px;bottom:-3px;width:2px;background:var(--ink);border-radius:1px}\n",
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}\n",
    "th,td{text-align:left;padding:6px 16px 6px 0;border-bottom:1px solid var(--line);vertical-align:baseline}\n",
    "th{font-weight:600;color:var(--soft);font-size:13px;white-space:nowrap}td.n,th.n{text-align:right}\n",
    "tr:last-child td{border-bottom:0}td.key{white-space:nowrap}code,.mono{font:13px ui-monospace,"
    "SFMono-Regular,Menlo,Consolas,monospace}.value{overflow-wrap:anywhere}.from{color:var(--soft);"
    "overflow-wrap:anywhere}\n",
    "details{margin-top:12px}summary{cursor:pointer;color:var(--soft);font-size:14px}\n",
    ".note{border-left:3px solid var(--k1);padding:6px 14px;margin:8px 0;background:var(--card);"
    "border-radius:0 8px 8px 0}\n",
    "footer{margin-top:52px;color:var(--soft);font-size:13px}\n",
    ".k0{color:var(--k0)}.k1{color:var(--k1)}.k2{color:var(--k2)}.k3{color:var(--k3)}.k4{color:var(--k4)}.k5{"
    "color:var(--k5)}.k6{color:var(--k6)}.k7{color:var(--k7)}.k8{color:var(--k8)}.k9{color:var(--k9)}\n",
    "@media print{main{padding:0}.card,.tile{break-inside:avoid}}\n",
    "@media(max-width:560px){main{padding:24px 14px 48px}h1{font-size:24px}.wide{overflow-x:auto}.wide "
    "svg{min-width:640px}.wide svg svg{min-width:0}.bars{grid-template-columns:1fr}"
    ".bars>span:nth-child(3n){text-align:left}}\n",
};

void weft_html_begin(FILE *to, const char *title) {
    (void)fputs("<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
                "<meta name=viewport content=\"width=device-width,initial-scale=1\">\n<title>",
                to);
    weft_html_text(to, title);
    (void)fputs(" - Weft</title>\n<style>\n", to);
    for (size_t i = 0; i < sizeof style / sizeof *style; i++) (void)fputs(style[i], to);
    (void)fputs("</style></head>\n<body><main>\n", to);
}

void weft_html_tile(FILE *to, const char *value, const char *about, ...) {
    char text[400];
    va_list args;
    va_start(args, about);
    (void)vsnprintf(text, sizeof text, about, args);
    va_end(args);
    (void)fputs("<div class=tile><b>", to);
    weft_html_text(to, value);
    (void)fputs("</b><span>", to);
    weft_html_text(to, text);
    (void)fputs("</span></div>\n", to);
}

/* ---- bars ---- */

static double bar_length(const weft_bars *self, const weft_bar *bar) {
    double sum = 0.0;
    for (int i = 0; i < self->n_parts; i++) sum += bar->parts[i];
    return sum;
}

static double longest(const weft_bars *self, const weft_bar *bars, size_t n) {
    double most = 0.0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, bar_length(self, &bars[i]));
        if (isfinite(bars[i].mark)) most = fmax(most, bars[i].mark);
    }
    return most;
}

static const char *amount(char text[WEFT_UNIT_SIZE], const weft_bars *self, double value) {
    return self->bytes ? weft_unit_bytes(text, (int64_t)value) : weft_unit_seconds(text, value);
}

static void print_bar(const weft_bars *self, const weft_bar *bar, double most, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    (void)fputs("<span>", to);
    weft_html_text(to, bar->name);
    (void)fputs("</span><div class=bar>", to);
    for (int i = 0; i < self->n_parts; i++) {
        if (!(bar->parts[i] > 0.0)) continue;
        (void)fprintf(to, "<u class=k%d style=\"width:%.3f%%\" title=\"%s: %s\"></u>", self->colours[i],
                      100.0 * bar->parts[i] / most, self->names[i], amount(text, self, bar->parts[i]));
    }
    if (isfinite(bar->mark))
        (void)fprintf(to, "<em style=\"left:%.3f%%\" title=\"%s: %s\"></em>", 100.0 * bar->mark / most, self->mark_name,
                      amount(text, self, bar->mark));
    (void)fputs("</div><span>", to);
    weft_html_text(to, bar->total);
    (void)fputs("</span>\n", to);
}

static void print_bars_legend(const weft_bars *self, const weft_bar *bars, size_t n, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    bool marked = false;
    (void)fputs("<ul class=legend>", to);
    for (int i = 0; i < self->n_parts; i++) {
        double most = 0.0;
        for (size_t k = 0; k < n; k++) most = fmax(most, bars[k].parts[i]);
        if (!(most > 0.0)) continue;
        (void)fprintf(to, "<li><i class=k%d></i>%s", self->colours[i], self->names[i]);
        if (n == 1) (void)fprintf(to, " %s", amount(text, self, most));
        (void)fputs("</li>", to);
    }
    for (size_t k = 0; k < n; k++) marked = marked || isfinite(bars[k].mark);
    if (marked) (void)fprintf(to, "<li><b>|</b>&ensp;%s</li>", self->mark_name);
    (void)fputs("</ul>\n", to);
}

void weft_bars_print(const weft_bars *self, const weft_bar *bars, size_t n, FILE *to) {
    const double most = longest(self, bars, n);
    if (!(most > 0.0)) return;
    (void)fputs("<div class=card><div class=bars>\n", to);
    for (size_t i = 0; i < n; i++) print_bar(self, &bars[i], most, to);
    (void)fputs("</div>\n", to);
    print_bars_legend(self, bars, n, to);
    (void)fputs("</div>\n", to);
}

/* ---- charts ---- */

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
