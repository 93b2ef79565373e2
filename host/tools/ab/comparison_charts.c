/* host/tools/ab/comparison_charts.c: see comparison_charts.h. */
#include "tools/ab/comparison_charts.h"

#include "tools/ab/comparison_words.h"
#include "tools/common/chart.h"
#include "tools/common/html.h"

#include <math.h>
#include <stdlib.h>

/* An arm's own, the two ends of its interval, and what is drawn of the first against itself. */
enum { MOST_LINES = 3 * WEFT_AB_MOST_ARMS + 2 };

/* Lines of all arms, and the numbers that they are made of: [n][length] of each. */
typedef struct lines {
    weft_series series[MOST_LINES];
    char names[MOST_LINES][300];
    double *x, *y;
    size_t n, length;
} lines;

static bool make_lines(lines *self, size_t length) {
    memset(self, 0, sizeof *self);
    self->length = length;
    self->x = calloc(MOST_LINES * length + 1, sizeof *self->x);
    self->y = calloc(MOST_LINES * length + 1, sizeof *self->y);
    return self->x != NULL && self->y != NULL;
}

static void free_lines(lines *self) {
    free(self->x);
    free(self->y);
}

/* The numbers of one more line, to be filled; counted from 1. */
static double *add_line(lines *self, const weft_ab_experiment *experiment, int32_t arm, int look) {
    double *x = self->x + self->n * self->length, *y = self->y + self->n * self->length;
    const bool again = arm == experiment->n; /* the first's second blocks */
    const int32_t of = again ? 0 : arm;
    for (size_t i = 0; i < self->length; i++) {
        x[i] = (double)i + 1;
        y[i] = NAN;
    }
    (void)snprintf(self->names[self->n], sizeof self->names[0], "%c%s %s", weft_ab_letter(of), again ? " again" : "",
                   experiment->arms[of].spec->label);
    self->series[self->n] = (weft_series){
        .name = self->names[self->n], .colour = again ? 9 : (int)of, .look = look, .x = x, .y = y, .n = self->length};
    self->n++;
    return y;
}

static void draw(lines *self, weft_chart *chart, FILE *to) {
    chart->series = self->series;
    chart->n = self->n;
    weft_chart_print(chart, to);
}

/* Blocks of all arms, in milliseconds. */
static void draw_blocks(const weft_ab_experiment *experiment, double (*of)[WEFT_AB_MOST_ROUNDS], double scale,
                        weft_chart *chart, FILE *to) {
    lines all;
    if (make_lines(&all, (size_t)experiment->times.rounds)) {
        for (int32_t i = 0; i <= experiment->n; i++) {
            double *y = add_line(&all, experiment, i, WEFT_LOOK_DOTS);
            for (int32_t r = 0; r < experiment->times.rounds; r++) y[r] = of[i][r] >= 0 ? scale * of[i][r] : NAN;
        }
        draw(&all, chart, to);
    }
    free_lines(&all);
}

/* An arm's time over that of A in its round, and A's over its own other one. */
static void draw_ratios(const weft_ab_experiment *experiment, FILE *to) {
    weft_chart chart = {.title = "Time beside A",
                        .about = "percent more or less, round by round; grey: A itself",
                        .wide = true,
                        .axis = "round"};
    double(*const of)[WEFT_AB_MOST_ROUNDS] = experiment->times.of;
    lines all;
    if (make_lines(&all, (size_t)experiment->times.rounds)) {
        for (int32_t i = 1; i <= experiment->n; i++) {
            double *y = add_line(&all, experiment, i, WEFT_LOOK_DOTS);
            for (int32_t r = 0; r < experiment->times.rounds; r++)
                y[r] = 100 * (i == experiment->n ? of[i][r] / of[0][r] - 1
                                                 : of[i][r] / sqrt(of[0][r] * of[experiment->n][r]) - 1);
        }
        draw(&all, &chart, to);
    }
    free_lines(&all);
}

/* ---- what was known at each look ---- */

static void set_look(lines *self, size_t line, int32_t at, int32_t rounds, double log_ratio) {
    self->x[line * self->length + (size_t)at] = rounds;
    self->y[line * self->length + (size_t)at] = isfinite(log_ratio) ? 100 * weft_ab_share(log_ratio) : NAN;
}

/* The median of an arm, the ends of its interval, and how far A is from itself, as they were judged after so many
 * rounds. */
static void note_look(lines *self, const weft_ab_experiment *experiment, int32_t at, int32_t rounds, int32_t look) {
    const weft_ab_times times = {experiment->n, rounds, experiment->times.of};
    for (int32_t i = 1; i < experiment->n; i++) {
        const weft_ab_verdict verdict = weft_ab_judge(&times, i, look);
        const size_t line = 3 * (size_t)(i - 1);
        if (experiment->arms[i].diverged.step > 0) continue;
        set_look(self, line, at, rounds, verdict.ratio.median);
        set_look(self, line + 1, at, rounds, verdict.ratio.low);
        set_look(self, line + 2, at, rounds, verdict.ratio.high);
        set_look(self, self->n - 2, at, rounds, verdict.noise_bound);
        set_look(self, self->n - 1, at, rounds, -verdict.noise_bound);
    }
}

static void draw_looks(const weft_ab_experiment *experiment, FILE *to) {
    weft_chart chart = {.title = "What was known",
                        .about = "time beside A, percent: median and interval at each look; grey: A itself",
                        .wide = true,
                        .axis = "round"};
    const int32_t last = experiment->times.rounds;
    int32_t looks = 0, at = 0;
    lines all;
    for (int32_t r = 1; r <= last; r++) looks += weft_ab_look(r) > 0 || r == last;
    if (make_lines(&all, (size_t)looks)) {
        for (int32_t i = 1; i < experiment->n; i++) {
            (void)add_line(&all, experiment, i, WEFT_LOOK_DOTS);
            (void)add_line(&all, experiment, i, WEFT_LOOK_FAINT);
            (void)add_line(&all, experiment, i, WEFT_LOOK_FAINT);
        }
        (void)add_line(&all, experiment, experiment->n, WEFT_LOOK_LINE);
        (void)add_line(&all, experiment, experiment->n, WEFT_LOOK_LINE);
        all.series[all.n - 1].name = all.series[all.n - 2].name; /* once in the legend */
        for (int32_t r = 1; r <= last; r++)
            if (weft_ab_look(r) > 0 || r == last) {
                note_look(&all, experiment, at, r, at + 1);
                at++;
            }
        draw(&all, &chart, to);
    }
    free_lines(&all);
}

static void draw_learning(const weft_ab_experiment *experiment, FILE *to) {
    weft_chart chart = {.title = "Loss beside A",
                        .about = "of each micro-batch of validation, a target; below 0 is better",
                        .wide = true,
                        .axis = "micro-batch"};
    lines all;
    if (experiment->learning.steps > 0 && make_lines(&all, (size_t)experiment->learning.micro_batches)) {
        for (int32_t i = 1; i < experiment->n; i++) {
            double *y = add_line(&all, experiment, i, WEFT_LOOK_DOTS);
            for (int64_t k = 0; k < experiment->learning.micro_batches; k++)
                y[k] = experiment->arms[i].learned.micro_batches[k] - experiment->arms[0].learned.micro_batches[k];
        }
        draw(&all, &chart, to);
        free_lines(&all);
    }
}

void weft_ab_print_charts(const weft_ab_experiment *experiment, FILE *to) {
    weft_chart times = {.title = experiment->per_target ? "Time of a target" : "Time of a step",
                        .about = experiment->per_target ? "microseconds, median of a block"
                                                        : "milliseconds, median of a block",
                        .wide = true,
                        .axis = "round"};
    weft_chart exchange = {.title = "Exchange", .about = "of a step, milliseconds, median of a block", .axis = "round"};
    if (experiment->times.rounds == 0 && experiment->learning.steps == 0) return;
    (void)fputs("<h2>Measured</h2>\n<div class=charts>\n", to);
    draw_blocks(experiment, experiment->times.of, experiment->per_target ? 1e6 : 1e3, &times, to);
    draw_ratios(experiment, to);
    draw_looks(experiment, to);
    if (experiment->arms[0].exchange > 0) draw_blocks(experiment, experiment->exchange, 1e3, &exchange, to);
    draw_learning(experiment, to);
    (void)fputs("</div>\n", to);
}
