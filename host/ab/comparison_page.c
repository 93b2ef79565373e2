/* host/ab/comparison_page.c: see comparison_page.h. */
#include "ab/comparison_page.h"

#include "ab/comparison_words.h"
#include "base/file.h"
#include "base/units.h"
#include "pages/bars.h"
#include "pages/chart.h"
#include "pages/html.h"
#include "report/contrast.h"

#include <math.h>
#include <stdlib.h>

/* ---- sentences ---- */

typedef void sentence(char *text, size_t size, const weft_ab_contest *contest, int32_t i);

static void print_sentences(const weft_ab_contest *contest, sentence *say, const char *class, FILE *to) {
    char text[WEFT_AB_SENTENCE];
    for (int32_t i = 1; i < contest->n; i++) {
        say(text, sizeof text, contest, i);
        if (text[0] == '\0') continue;
        (void)fprintf(to, "<p class=%s>", class);
        weft_html_text(to, text);
        (void)fputs("</p>\n", to);
    }
}

static void print_arms(const weft_ab_contest *contest, FILE *to) {
    (void)fputs("<ul class=legend>", to);
    for (int32_t i = 0; i < contest->n; i++) {
        (void)fprintf(to, "<li><i class=k%d></i>%c ", (int)i % WEFT_HTML_COLOURS, weft_ab_letter(i));
        weft_html_text(to, contest->arms[i].spec->label);
        (void)fputs("</li>", to);
    }
    (void)fputs("</ul>\n", to);
}

static void print_tiles(const weft_ab_contest *contest, FILE *to) {
    char value[64], about[400];
    (void)fputs("<div class=tiles>\n", to);
    for (int32_t i = 1; i < contest->n; i++) {
        const weft_ab_arm *arm = &contest->arms[i];
        (void)snprintf(value, sizeof value, "-");
        if (!isnan(arm->verdict.ratio.median))
            (void)snprintf(value, sizeof value, "%+.1f %%", 100 * weft_ab_share(arm->verdict.ratio.median));
        (void)snprintf(about, sizeof about, "time of %c beside A: %s", weft_ab_letter(i),
                       weft_ab_answer_name(arm->verdict.answer));
        weft_html_tile(to, value, about);
        (void)snprintf(about, sizeof about, "outcome of %c", weft_ab_letter(i));
        weft_html_tile(to, weft_ab_outcome_name(arm->outcome), about);
    }
    (void)fputs("</div>\n", to);
}

/* ---- drawings ---- */

/* Lines of all arms, and the numbers that they are made of: [n][length] of each. */
typedef struct lines {
    weft_series series[WEFT_AB_MOST_ARMS + 1];
    char names[WEFT_AB_MOST_ARMS + 1][300];
    double *x, *y;
    size_t n, length;
} lines;

static bool make_lines(lines *self, size_t length) {
    memset(self, 0, sizeof *self);
    self->length = length;
    self->x = calloc((WEFT_AB_MOST_ARMS + 1) * length + 1, sizeof *self->x);
    self->y = calloc((WEFT_AB_MOST_ARMS + 1) * length + 1, sizeof *self->y);
    return self->x != NULL && self->y != NULL;
}

static void free_lines(lines *self) {
    free(self->x);
    free(self->y);
}

/* The numbers of one more line, to be filled; counted from 1. */
static double *add_line(lines *self, const weft_ab_contest *contest, int32_t arm, int look) {
    double *x = self->x + self->n * self->length, *y = self->y + self->n * self->length;
    const bool again = arm == contest->n; /* the first's second blocks */
    const int32_t of = again ? 0 : arm;
    for (size_t i = 0; i < self->length; i++) x[i] = (double)i + 1;
    (void)snprintf(self->names[self->n], sizeof self->names[0], "%c%s %s", weft_ab_letter(of), again ? " again" : "",
                   contest->arms[of].spec->label);
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
static void draw_blocks(const weft_ab_contest *contest, double (*of)[WEFT_AB_MOST_ROUNDS], double scale,
                        weft_chart *chart, FILE *to) {
    lines all;
    if (make_lines(&all, (size_t)contest->times.rounds)) {
        for (int32_t i = 0; i <= contest->n; i++) {
            double *y = add_line(&all, contest, i, WEFT_LOOK_DOTS);
            for (int32_t r = 0; r < contest->times.rounds; r++) y[r] = of[i][r] >= 0 ? scale * of[i][r] : NAN;
        }
        draw(&all, chart, to);
    }
    free_lines(&all);
}

/* An arm's time over that of A in its round, and A's over its own other one. */
static void draw_ratios(const weft_ab_contest *contest, FILE *to) {
    weft_chart chart = {.title = "Time beside A",
                        .about = "percent more or less, round by round; grey: A itself",
                        .wide = true,
                        .axis = "round"};
    double(*const of)[WEFT_AB_MOST_ROUNDS] = contest->times.of;
    lines all;
    if (make_lines(&all, (size_t)contest->times.rounds)) {
        for (int32_t i = 1; i <= contest->n; i++) {
            double *y = add_line(&all, contest, i, WEFT_LOOK_DOTS);
            for (int32_t r = 0; r < contest->times.rounds; r++)
                y[r] = 100 *
                       (i == contest->n ? of[i][r] / of[0][r] - 1 : of[i][r] / sqrt(of[0][r] * of[contest->n][r]) - 1);
        }
        draw(&all, &chart, to);
    }
    free_lines(&all);
}

static void draw_learning(const weft_ab_contest *contest, FILE *to) {
    weft_chart chart = {.title = "Loss beside A",
                        .about = "of each leaf of validation, a target; below 0 is better",
                        .wide = true,
                        .axis = "leaf"};
    lines all;
    if (contest->learning.steps > 0 && make_lines(&all, (size_t)contest->learning.leaves)) {
        for (int32_t i = 1; i < contest->n; i++) {
            double *y = add_line(&all, contest, i, WEFT_LOOK_DOTS);
            for (int64_t k = 0; k < contest->learning.leaves; k++)
                y[k] = contest->arms[i].learned.leaves[k] - contest->arms[0].learned.leaves[k];
        }
        draw(&all, &chart, to);
        free_lines(&all);
    }
}

static void print_charts(const weft_ab_contest *contest, FILE *to) {
    weft_chart times = {.title = contest->per_target ? "Time of a target" : "Time of a step",
                        .about = contest->per_target ? "microseconds, median of a block"
                                                     : "milliseconds, median of a block",
                        .wide = true,
                        .axis = "round"};
    weft_chart exchange = {.title = "Exchange", .about = "of a step, milliseconds, median of a block", .axis = "round"};
    (void)fputs("<h2>Measured</h2>\n<div class=charts>\n", to);
    draw_blocks(contest, contest->times.of, contest->per_target ? 1e6 : 1e3, &times, to);
    draw_ratios(contest, to);
    if (contest->arms[0].exchange > 0) draw_blocks(contest, contest->exchange, 1e3, &exchange, to);
    draw_learning(contest, to);
    (void)fputs("</div>\n", to);
}

/* ---- what is planned ---- */

static int64_t fact_of(const weft_ab_arm *arm, const char *name) {
    return json_integer_value(json_object_get(json_object_get(arm->facts, "numbers"), name));
}

static void print_memory(const weft_ab_contest *contest, FILE *to) {
    static const char *const names[] = {"parameters", "gradients", "optimizer", "activations", "workspace", "gaps"};
    static const int colours[] = {0, 2, 1, 4, 6, 9};
    const weft_bars look = {.names = names, .colours = colours, .n_parts = 6, .bytes = true};
    weft_bar bars[WEFT_AB_MOST_ARMS];
    char name[64], total[WEFT_UNIT_SIZE];
    memset(bars, 0, sizeof bars);
    for (int32_t i = 0; i < contest->n; i++) {
        const weft_ab_arm *arm = &contest->arms[i];
        (void)snprintf(bars[i].name, sizeof bars[i].name, "%c %.140s", weft_ab_letter(i), arm->spec->label);
        for (int k = 0; k < 6; k++) {
            (void)snprintf(name, sizeof name, "memory %s", names[k]);
            bars[i].parts[k] = (double)fact_of(arm, name);
        }
        bars[i].mark = NAN;
        (void)snprintf(bars[i].total, sizeof bars[i].total, "%s", weft_unit_bytes(total, arm->bytes));
    }
    (void)fputs("<h2>Memory <small>planned, of the rank that takes most</small></h2>\n<div class=card>\n", to);
    weft_bars_print(&look, bars, (size_t)contest->n, to);
    (void)fputs("</div>\n", to);
}

static void print_difference(const weft_ab_contest *contest, int32_t i, FILE *to) {
    const weft_ab_arm *arm = &contest->arms[i];
    char b[2] = {weft_ab_letter(i), '\0'}, *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    (void)fprintf(to, "<h2>What differs in %s</h2>\n<div class=\"card scroll\"><pre class=mono>", b);
    if (stream != NULL) {
        weft_contrast_print(arm->difference, "A", b, stream);
        (void)fprintf(stream, "programs of rank 0: %s\n", arm->programs[0] != '\0' ? arm->programs : "the same events");
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

static void print_page(const weft_ab_contest *contest, FILE *to) {
    char text[WEFT_AB_SENTENCE];
    weft_html_begin(to, "weft ab");
    (void)fprintf(to, "<p class=mark>Weft &middot; %d arms by turns</p>\n<h1>", (int)contest->n);
    for (int32_t i = 0; i < contest->n; i++) {
        if (i > 0) (void)fputs(" or ", to);
        weft_html_text(to, contest->arms[i].spec->label);
    }
    (void)fputs("</h1>\n", to);
    print_arms(contest, to);
    print_tiles(contest, to);
    print_sentences(contest, weft_ab_say_time, "note", to);
    print_sentences(contest, weft_ab_say_outcome, "note", to);
    print_sentences(contest, weft_ab_say_beside, "soft", to);
    print_sentences(contest, weft_ab_say_numbers, "soft", to);
    if (contest->learning.steps > 0) print_sentences(contest, weft_ab_say_learning, "soft", to);
    weft_ab_say_alone(text, sizeof text, contest);
    (void)fputs("<p class=soft>", to);
    weft_html_text(to, text);
    (void)fputs(". ", to);
    weft_ab_say_noise(text, sizeof text, contest);
    weft_html_text(to, text);
    (void)fputs(".</p>\n", to);
    print_charts(contest, to);
    print_memory(contest, to);
    for (int32_t i = 1; i < contest->n; i++) print_difference(contest, i, to);
    (void)fprintf(to,
                  "<footer>Written by <code>weft ab</code> of Weft %s: %d rounds of %lld steps an arm.</footer>\n"
                  "</main></body></html>\n",
                  WEFT_VERSION, (int)contest->times.rounds, (long long)contest->block);
}

weft_status weft_ab_page_save(const weft_ab_contest *contest, const char *path, weft_error *err) {
    weft_file file;
    FILE *to = weft_file_begin(&file, path, err);
    if (to == NULL) return WEFT_E_SYSTEM;
    print_page(contest, to);
    return weft_file_commit(&file, err);
}
