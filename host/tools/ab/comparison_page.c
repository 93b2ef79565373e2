/* host/tools/ab/comparison_page.c: results of an experiment as one self-contained HTML page. */
#include "tools/ab/comparison_table.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/units.h"
#include "tools/common/plan_costs.h"
#include "tools/common/html.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Per arm: its ratio and both ends of its interval, and two lines for the first arm against itself. */
enum { MOST_LINES = 3 * WEFT_AB_MOST_ARMS + 2 };

/* Lines of all arms, and their x and y values: [n][length] each. */
typedef struct lines {
    weft_series series[MOST_LINES];
    char names[MOST_LINES][300];
    double *x, *y;
    size_t n, length;
} lines;

static void make_lines(lines *self, size_t length) {
    memset(self, 0, sizeof *self);
    self->length = length;
    self->x = weft_alloc(MOST_LINES * length, sizeof *self->x);
    self->y = weft_alloc(MOST_LINES * length, sizeof *self->y);
}

/* Adds a line and returns its values to fill; x counts from 1. */
static double *add_line(lines *self, const weft_ab_experiment *experiment, int32_t arm, int look) {
    double *x = self->x + self->n * self->length, *y = self->y + self->n * self->length;
    const bool again = arm == experiment->n; /* the first arm's second blocks */
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

/* Prints the chart and frees the lines. */
static void draw(lines *self, weft_chart *chart, FILE *to) {
    chart->series = self->series;
    chart->n = self->n;
    weft_chart_print(chart, to);
    free(self->x);
    free(self->y);
}

/* Draws the blocks of all arms, in milliseconds. */
static void draw_blocks(const weft_ab_experiment *experiment, double (*of)[WEFT_AB_MOST_ROUNDS], double scale,
                        weft_chart *chart, FILE *to) {
    lines all;
    make_lines(&all, (size_t)experiment->times.rounds);
    for (int32_t i = 0; i <= experiment->n; i++) {
        double *y = add_line(&all, experiment, i, WEFT_LOOK_DOTS);
        for (int32_t r = 0; r < experiment->times.rounds; r++) y[r] = of[i][r] >= 0 ? scale * of[i][r] : NAN;
    }
    draw(&all, chart, to);
}

/* Draws each arm's time relative to A in the same round, and A's second block relative to its first. */
static void draw_ratios(const weft_ab_experiment *experiment, FILE *to) {
    weft_chart chart = {.title = "Time beside A",
                        .about = "percent more or less, round by round; grey: A itself",
                        .wide = true,
                        .axis = "round"};
    double(*const of)[WEFT_AB_MOST_ROUNDS] = experiment->times.of;
    lines all;
    make_lines(&all, (size_t)experiment->times.rounds);
    for (int32_t i = 1; i <= experiment->n; i++) {
        double *y = add_line(&all, experiment, i, WEFT_LOOK_DOTS);
        for (int32_t r = 0; r < experiment->times.rounds; r++)
            y[r] = 100 * (i == experiment->n ? of[i][r] / of[0][r] - 1
                                             : of[i][r] / sqrt(of[0][r] * of[experiment->n][r]) - 1);
    }
    draw(&all, &chart, to);
}

/* ---- estimates at each look ---- */

static void set_look(lines *self, size_t line, int32_t at, int32_t rounds, double log_ratio) {
    self->x[line * self->length + (size_t)at] = rounds;
    self->y[line * self->length + (size_t)at] = isfinite(log_ratio) ? 100 * weft_ab_share(log_ratio) : NAN;
}

/* Adds an arm's median, its interval and the noise of A, as evaluated at a look after `rounds` rounds. */
static void note_look(lines *self, const weft_ab_experiment *experiment, int32_t at, int32_t rounds, int32_t look) {
    const weft_ab_times times = {experiment->n, rounds, experiment->times.of};
    for (int32_t i = 1; i < experiment->n; i++) {
        const weft_ab_verdict verdict = weft_ab_check(&times, i, look);
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
                        .about = "time relative to A, percent: median and interval at each check; grey: A itself",
                        .wide = true,
                        .axis = "round"};
    const int32_t last = experiment->times.rounds;
    int32_t looks = 0, at = 0;
    lines all;
    for (int32_t r = 1; r <= last; r++) looks += weft_ab_look(r) > 0 || r == last;
    make_lines(&all, (size_t)looks);
    for (int32_t i = 1; i < experiment->n; i++) {
        (void)add_line(&all, experiment, i, WEFT_LOOK_DOTS);
        (void)add_line(&all, experiment, i, WEFT_LOOK_FAINT);
        (void)add_line(&all, experiment, i, WEFT_LOOK_FAINT);
    }
    (void)add_line(&all, experiment, experiment->n, WEFT_LOOK_LINE);
    (void)add_line(&all, experiment, experiment->n, WEFT_LOOK_LINE);
    all.series[all.n - 1].name = all.series[all.n - 2].name; /* one legend entry for both ends */
    for (int32_t r = 1; r <= last; r++)
        if (weft_ab_look(r) > 0 || r == last) {
            note_look(&all, experiment, at, r, at + 1);
            at++;
        }
    draw(&all, &chart, to);
}

static void draw_learning(const weft_ab_experiment *experiment, FILE *to) {
    weft_chart chart = {.title = "Loss beside A",
                        .about = "of each micro-batch of validation, a target; below 0 is better",
                        .wide = true,
                        .axis = "micro-batch"};
    lines all;
    if (experiment->learning.steps == 0) return;
    make_lines(&all, (size_t)experiment->learning.micro_batches);
    for (int32_t i = 1; i < experiment->n; i++) {
        double *y = add_line(&all, experiment, i, WEFT_LOOK_DOTS);
        for (int64_t k = 0; k < experiment->learning.micro_batches; k++)
            y[k] = experiment->arms[i].learned.micro_batches[k] - experiment->arms[0].learned.micro_batches[k];
    }
    draw(&all, &chart, to);
}

static void weft_ab_print_charts(const weft_ab_experiment *experiment, FILE *to) {
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

/* ---- summary ---- */

static void print_sentence(const char *text, const char *class, FILE *to) {
    (void)fprintf(to, "<p class=%s>", class);
    weft_html_text(to, text);
    (void)fputs("</p>\n", to);
}

typedef void sentence(char *text, size_t size, const weft_ab_experiment *experiment, int32_t i);

static void print_sentences(const weft_ab_experiment *experiment, sentence *say, const char *class, FILE *to) {
    char text[WEFT_AB_SENTENCE];
    for (int32_t i = 1; i < experiment->n; i++) {
        say(text, sizeof text, experiment, i);
        if (text[0] != '\0') print_sentence(text, class, to);
    }
}

static void print_arms(const weft_ab_experiment *experiment, FILE *to) {
    (void)fputs("<ul class=legend>", to);
    for (int32_t i = 0; i < experiment->n; i++) {
        (void)fprintf(to, "<li><i class=k%d></i>%c ", (int)i % WEFT_HTML_COLOURS, weft_ab_letter(i));
        weft_html_text(to, experiment->arms[i].spec->label);
        (void)fputs("</li>", to);
    }
    (void)fputs("</ul>\n", to);
}

static void print_tiles(const weft_ab_experiment *experiment, FILE *to) {
    char value[64];
    (void)fputs("<div class=tiles>\n", to);
    for (int32_t i = 1; i < experiment->n; i++) {
        const weft_ab_arm *arm = &experiment->arms[i];
        (void)snprintf(value, sizeof value, "-");
        if (!isnan(arm->verdict.ratio.median))
            (void)snprintf(value, sizeof value, "%+.1f %%", 100 * weft_ab_share(arm->verdict.ratio.median));
        weft_html_tile(to, value, "time of %c relative to A: %s", weft_ab_letter(i), weft_ab_time_name(experiment, i));
        weft_html_tile(to, weft_ab_outcome_name(arm->outcome), "outcome of %c", weft_ab_letter(i));
    }
    (void)fputs("</div>\n", to);
}

/* ---- plan ---- */

static int64_t fact_of(const weft_ab_arm *arm, const char *name) {
    return json_integer_value(json_object_get(json_object_get(arm->facts, "numbers"), name));
}

static void print_memory(const weft_ab_experiment *experiment, FILE *to) {
    static const char *const names[] = {"parameters", "gradients", "optimizer", "activations", "workspace", "gaps"};
    static const int colours[] = {0, 2, 1, 4, 6, 9};
    const weft_bars look = {.names = names, .colours = colours, .n_parts = 6, .bytes = true};
    weft_bar bars[WEFT_AB_MOST_ARMS];
    char name[64], total[WEFT_UNIT_SIZE];
    memset(bars, 0, sizeof bars);
    for (int32_t i = 0; i < experiment->n; i++) {
        const weft_ab_arm *arm = &experiment->arms[i];
        (void)snprintf(bars[i].name, sizeof bars[i].name, "%c %.140s", weft_ab_letter(i), arm->spec->label);
        for (int k = 0; k < 6; k++) {
            (void)snprintf(name, sizeof name, "memory %s", names[k]);
            bars[i].parts[k] = (double)fact_of(arm, name);
        }
        bars[i].mark = NAN;
        (void)snprintf(bars[i].total, sizeof bars[i].total, "%s", weft_unit_bytes(total, arm->bytes));
    }
    (void)fputs("<h2>Memory <small>planned, of the rank with the most</small></h2>\n<div class=card>\n", to);
    weft_bars_print(&look, bars, (size_t)experiment->n, to);
    (void)fputs("</div>\n", to);
}

static void print_difference(const weft_ab_experiment *experiment, int32_t i, FILE *to) {
    const weft_ab_arm *arm = &experiment->arms[i];
    char b[2] = {weft_ab_letter(i), '\0'}, *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    (void)fprintf(to, "<h2>Differences in %s</h2>\n<div class=\"card scroll\"><pre class=mono>", b);
    if (stream != NULL) {
        weft_plan_diff_print(arm->difference, "A", b, stream);
        (void)fprintf(stream, "programs of rank 0: %s\n",
                      arm->programs[0] != '\0' ? arm->programs : "the same instructions");
        (void)fclose(stream);
    }
    for (char *line = text; line != NULL && *line != '\0';) {
        char *end = line + strcspn(line, "\n");
        const bool last = *end == '\0';
        *end = '\0';
        weft_html_text(to, line);
        (void)fputc('\n', to);
        line = last ? end : end + 1;
    }
    free(text);
    (void)fputs("</pre></div>\n", to);
}

static void print_page(const weft_ab_experiment *experiment, FILE *to) {
    char text[WEFT_AB_SENTENCE];
    weft_html_begin(to, "weft ab");
    (void)fprintf(to, "<p class=mark>Weft &middot; %d arms by turns</p>\n<h1>", (int)experiment->n);
    for (int32_t i = 0; i < experiment->n; i++) {
        if (i > 0) (void)fputs(" or ", to);
        weft_html_text(to, experiment->arms[i].spec->label);
    }
    (void)fputs("</h1>\n", to);
    print_arms(experiment, to);
    print_tiles(experiment, to);
    print_sentences(experiment, weft_ab_print_time, "note", to);
    print_sentences(experiment, weft_ab_print_outcome, "note", to);
    print_sentences(experiment, weft_ab_print_beside, "soft", to);
    print_sentences(experiment, weft_ab_print_numbers, "soft", to);
    if (experiment->learning.steps > 0) print_sentences(experiment, weft_ab_print_learning, "soft", to);
    if (experiment->alone.rounds > 0) {
        weft_ab_print_alone(text, sizeof text, experiment);
        print_sentence(text, "soft", to);
    }
    if (experiment->times.rounds > 0) {
        weft_ab_print_noise(text, sizeof text, experiment);
        print_sentence(text, "soft", to);
    }
    weft_ab_print_charts(experiment, to);
    print_memory(experiment, to);
    for (int32_t i = 1; i < experiment->n; i++) print_difference(experiment, i, to);
    (void)fprintf(to,
                  "<footer>Written by <code>weft ab</code> of Weft %s: %d rounds of %lld steps an arm.</footer>\n"
                  "</main></body></html>\n",
                  WEFT_VERSION, (int)experiment->times.rounds, (long long)experiment->block);
}

weft_status weft_ab_page_save(const weft_ab_experiment *experiment, const char *path, weft_error *err) {
    weft_file file;
    FILE *to = weft_file_begin(&file, path, err);
    if (to == NULL) return WEFT_E_SYSTEM;
    print_page(experiment, to);
    return weft_file_commit(&file, err);
}
