/* host/tools/common/bars.c: see bars.h. */
#include "tools/common/bars.h"

#include "base/units.h"
#include "tools/common/html.h"

#include <math.h>

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
