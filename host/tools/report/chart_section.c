/* host/tools/report/chart_section.c: the lines of one or several runs over their steps. */
#include "tools/report/page_sections.h"

#include "tools/common/chart.h"

#include <math.h>
#include <stdlib.h>

/* Lines of several runs, and the numbers that they were made of. */
typedef struct lines {
    weft_series *series;
    double **numbers;
    size_t n, n_numbers;
    bool failed;
} lines;

static bool make_lines(lines *self, const weft_comparison *runs) {
    memset(self, 0, sizeof *self);
    self->series = calloc(3 * runs->n, sizeof *self->series);
    self->numbers = calloc(6 * runs->n, sizeof *self->numbers);
    return self->series != NULL && self->numbers != NULL;
}

static void free_lines(lines *self) {
    for (size_t i = 0; i < self->n_numbers; i++) free(self->numbers[i]);
    free(self->numbers);
    free(self->series);
}

/* A column of an array of structs of doubles. */
static double *take_column(lines *self, const void *rows, size_t n, size_t stride, size_t offset) {
    double *out = calloc(n + 1, sizeof *out);
    self->failed = self->failed || out == NULL;
    for (size_t i = 0; out != NULL && i < n; i++)
        memcpy(&out[i], (const char *)rows + i * stride + offset, sizeof *out);
    if (out != NULL) self->numbers[self->n_numbers++] = out;
    return out;
}

/* The mean with what came before, so that about a fiftieth of the run counts. */
static void smooth(double *y, size_t n) {
    const double keep = n > 50 ? 1.0 - 50.0 / (double)n : 0.0;
    double mean = 0.0, weight = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(y[i])) continue;
        mean = keep * mean + (1.0 - keep) * y[i];
        weight = keep * weight + (1.0 - keep);
        y[i] = mean / weight;
    }
}

static void add_line(lines *self, const weft_series *series) {
    if (series->x != NULL && series->y != NULL) self->series[self->n++] = *series;
}

#define STEPS(field) take_column(self, run->steps, run->n_steps, sizeof *run->steps, offsetof(weft_past_step, field))
#define EVALUATIONS(field)                                                                                             \
    take_column(self, run->evaluations, run->n_evaluations, sizeof *run->evaluations,                                  \
                offsetof(weft_past_evaluation, field))

/* Of one run what was measured behind its mean; of several the means alone. */
static void add_losses(lines *self, const weft_comparison *runs, size_t i) {
    const weft_past_run *run = &runs->runs[i];
    const bool alone = runs->n == 1;
    double *mean = STEPS(loss);
    const double *x = STEPS(step);
    if (mean != NULL) smooth(mean, run->n_steps);
    if (alone) add_line(self, &(weft_series){"each step", 0, WEFT_LOOK_FAINT, x, STEPS(loss), run->n_steps, false});
    add_line(self, &(weft_series){alone ? "training" : runs->names[i], (int)i, WEFT_LOOK_LINE, x, mean, run->n_steps,
                                  i + 1 < runs->n});
    if (run->n_evaluations > 0)
        add_line(self, &(weft_series){alone ? "evaluation" : runs->names[i], alone ? 2 : (int)i, WEFT_LOOK_DOTS,
                                      EVALUATIONS(step), EVALUATIONS(loss), run->n_evaluations, false});
}

static void print_losses(const weft_comparison *runs, FILE *to) {
    weft_chart chart = {.title = "Loss", .about = "mean over target tokens; dots: evaluation", .wide = true};
    lines all;
    if (make_lines(&all, runs)) {
        for (size_t i = 0; i < runs->n; i++) add_losses(&all, runs, i);
        chart.series = all.series;
        chart.n = all.n;
        if (!all.failed) weft_chart_print(&chart, to);
    }
    free_lines(&all);
}

/* A chart of one number of each run's steps. */
static void print_field(const weft_comparison *runs, weft_chart *chart, size_t offset, bool smoothed, FILE *to) {
    lines all, *self = &all;
    if (make_lines(self, runs)) {
        for (size_t i = 0; i < runs->n; i++) {
            const weft_past_run *run = &runs->runs[i];
            double *y = take_column(self, run->steps, run->n_steps, sizeof *run->steps, offset);
            if (smoothed && y != NULL) smooth(y, run->n_steps);
            add_line(self, &(weft_series){runs->names[i], (int)i, WEFT_LOOK_LINE, STEPS(step), y, run->n_steps,
                                          i + 1 < runs->n});
        }
        chart->series = all.series;
        chart->n = all.n;
        if (!all.failed) weft_chart_print(chart, to);
    }
    free_lines(self);
}

void weft_section_charts(const weft_comparison *runs, FILE *to) {
    weft_chart rate = {.title = "Learning rate", .about = "as it was used", .from_zero = true};
    weft_chart norm = {.title = "Gradient norm", .about = "before clipping", .from_zero = true};
    weft_chart speed = {.title = "Speed",
                        .about = "target tokens a second, while training",
                        .unit = WEFT_UNIT_COUNT,
                        .from_zero = true};
    weft_chart memory = {
        .title = "Resident memory", .about = "of rank 0's process", .unit = WEFT_UNIT_BYTES, .from_zero = true};
    bool any = false;
    for (size_t i = 0; i < runs->n; i++) any = any || runs->runs[i].n_steps > 0;
    if (!any) return;
    (void)fputs("<h2>Training</h2>\n<div class=charts>\n", to);
    print_losses(runs, to);
    print_field(runs, &rate, offsetof(weft_past_step, lr), false, to);
    print_field(runs, &norm, offsetof(weft_past_step, norm), false, to);
    print_field(runs, &speed, offsetof(weft_past_step, speed), true, to);
    print_field(runs, &memory, offsetof(weft_past_step, resident), false, to);
    (void)fputs("</div>\n", to);
}
