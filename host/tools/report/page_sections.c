/* host/tools/report/page_sections.c: runs as one HTML page: its sections, and the complete page. */
#include "tools/report/comparison.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/units.h"
#include "base/text.h"
#include "tools/common/html.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

/* ---- tiles ---- */

static void print_loss_tiles(const weft_digest *d, FILE *to) {
    char value[64];
    if (!isnan(d->last_loss)) {
        (void)snprintf(value, sizeof value, "%.4f", d->last_loss);
        weft_html_tile(to, value, "training loss at the end, from %.4f", d->first_loss);
    }
    if (!isnan(d->best_loss)) {
        (void)snprintf(value, sizeof value, "%.4f", d->best_loss);
        weft_html_tile(to, value, "best evaluation loss, at step %.0f", d->best_step);
    }
    if (!isnan(d->similarity)) {
        (void)snprintf(value, sizeof value, "%.4g", d->similarity);
        weft_html_tile(to, value, "similarity: 1 less the cosine of hidden states before and after");
    }
}

static void weft_section_tiles(const weft_digest *d, FILE *to) {
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    (void)fputs("<div class=tiles>\n", to);
    print_loss_tiles(d, to);
    if (!isnan(d->speed))
        weft_html_tile(to, weft_unit_count(a, (int64_t)d->speed), "tokens a second, %s a step",
                       weft_unit_seconds(b, d->step_seconds));
    if (!isnan(d->seconds))
        weft_html_tile(to, weft_unit_seconds(a, d->seconds), "in all, %.0f %% of it computing",
                       100.0 * d->times[WEFT_TIME_COMPUTE] / d->seconds);
    if (!isnan(d->planned))
        weft_html_tile(to, weft_unit_bytes(a, (int64_t)d->planned), "planned%s%s%s",
                       d->ranks > 1 ? " on the fullest rank" : "", isnan(d->resident) ? "" : "; the process: ",
                       isnan(d->resident) ? "" : weft_unit_bytes(b, (int64_t)d->resident));
    (void)fputs("</div>\n", to);
}

static void weft_section_notes(const weft_comparison *runs, FILE *to) {
    for (size_t i = 0; i < runs->n; i++)
        for (int32_t n = 0; n < runs->runs[i].n_notes; n++) {
            (void)fputs("<p class=note>", to);
            if (runs->n > 1) weft_html_text(to, runs->names[i]);
            if (runs->n > 1) (void)fputs(": ", to);
            weft_html_text(to, runs->runs[i].notes[n]);
            (void)fputs("</p>\n", to);
        }
}

/* ---- tables ---- */

/* Header cells except the first have the colour of their run. */
static void print_head_row(const weft_sheet *sheet, FILE *to) {
    (void)fputs("<tr>", to);
    for (size_t column = 0; column < sheet->columns; column++) {
        (void)fprintf(to, "<th%s>", column == 0 ? "" : " class=n");
        if (column > 0) (void)fprintf(to, "<i class=k%zu></i>", (column - 1) % WEFT_HTML_COLOURS);
        weft_html_text(to, column == 0 ? "" : weft_sheet_at(sheet, 0, column));
        (void)fputs("</th>", to);
    }
    (void)fputs("</tr>\n", to);
}

static void print_table(const weft_sheet *sheet, FILE *to) {
    (void)fputs("<div class=\"card scroll\"><table>\n", to);
    print_head_row(sheet, to);
    for (size_t row = 1; row < weft_sheet_rows(sheet); row++) {
        (void)fputs("<tr>", to);
        for (size_t column = 0; column < sheet->columns; column++) {
            (void)fputs(column == 0 ? "<td class=key>" : "<td class=n>", to);
            weft_html_text(to, weft_sheet_at(sheet, row, column));
            (void)fputs("</td>", to);
        }
        (void)fputs("</tr>\n", to);
    }
    (void)fputs("</table></div>\n", to);
}

static void weft_section_scaling(const weft_comparison *runs, FILE *to) {
    weft_sheet sheet;
    weft_comparison_scaling(runs, &sheet, true);
    (void)fputs("<h2>Time, memory and results <small>factors relative to the first run</small></h2>\n", to);
    print_table(&sheet, to);
    weft_sheet_free(&sheet);
}

static void weft_section_differences(const weft_comparison *runs, FILE *to) {
    weft_sheet sheet;
    weft_comparison_differences(runs, &sheet);
    (void)fputs("<h2>Differences of their configurations</h2>\n", to);
    if (weft_sheet_rows(&sheet) > 1) print_table(&sheet, to);
    else (void)fputs("<p class=soft>Only the output directories differ.</p>\n", to);
    weft_sheet_free(&sheet);
}

/* Bar charts of a run's memory and time, by part. */

/* ---- memory ---- */

static const char *const memory_names[] = {"parameters", "gradients", "optimizer", "activations", "workspace", "gaps"};
static const int memory_colours[] = {0, 2, 1, 4, 6, 9};
enum { N_MEMORY = 6, MOST_BARS = 64 };

/* Returns the peak resident memory of ranks `first` to `last`; NaN: unknown. */
static double resident_most(const weft_past_run *run, size_t first, size_t last) {
    double most = (double)NAN;
    for (size_t i = first; i <= last && i < run->n_ranks; i++)
        if (!(run->ranks[i].peak <= most)) most = run->ranks[i].peak;
    return most;
}

static void name_ranks_of(char *out, size_t size, const char *name, size_t first, size_t last, bool several) {
    if (first == last) (void)snprintf(out, size, "%.100s%srank %zu", name, several ? ", " : "", first);
    else (void)snprintf(out, size, "%.100s%sranks %zu to %zu", name, several ? ", " : "", first, last);
}

static void fill_memory(weft_bar *bar, const weft_past_run *run, const char *name, const json_t *planned) {
    char a[WEFT_UNIT_SIZE];
    const double total = weft_past_number(planned, NULL, "total");
    const size_t first = (size_t)weft_past_number(planned, NULL, "first"),
                 last = (size_t)weft_past_number(planned, NULL, "last");
    memset(bar, 0, sizeof *bar);
    name_ranks_of(bar->name, sizeof bar->name, name, first, last, *name != '\0');
    for (int i = 0; i < N_MEMORY; i++) {
        const double bytes = weft_past_number(planned, "categories", memory_names[i]);
        bar->parts[i] = isnan(bytes) ? 0.0 : bytes;
    }
    bar->mark = resident_most(run, first, last);
    (void)snprintf(bar->total, sizeof bar->total, "%s", isnan(total) ? "?" : weft_unit_bytes(a, (int64_t)total));
}

static size_t fill_memory_of_all(weft_bar *bars, const weft_comparison *runs) {
    size_t n = 0;
    for (size_t i = 0; i < runs->n; i++) {
        const json_t *planned = json_object_get(weft_past_start(&runs->runs[i]), "planned");
        for (size_t k = 0; k < json_array_size(planned) && n < MOST_BARS; k++)
            fill_memory(&bars[n++], &runs->runs[i], runs->n > 1 ? runs->names[i] : "", json_array_get(planned, k));
    }
    return n;
}

/* Prints used and planned memory of one run. */
static void print_taken(const weft_past_run *run, FILE *to) {
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE];
    const weft_past_rank *rank = run->ranks;
    if (run->n_ranks == 0) return;
    (void)fprintf(to,
                  "<p class=soft style=\"margin-top:10px\">Rank 0 has allocated %s on the device, of which at most %s "
                  "of the arena were in use; libraries use another %s.</p>\n",
                  weft_unit_bytes(a, (int64_t)rank->taken), weft_unit_bytes(b, (int64_t)rank->live),
                  weft_unit_bytes(c, (int64_t)rank->libraries));
}

static void weft_section_memory(const weft_comparison *runs, FILE *to) {
    static const weft_bars look = {memory_names, memory_colours, N_MEMORY, "peak resident memory of the process", true};
    weft_bar *bars = weft_alloc(MOST_BARS, sizeof *bars);
    const size_t n = fill_memory_of_all(bars, runs);
    if (n > 0) {
        (void)fputs("<h2>Memory <small>planned by category, at the highest moment of a step</small></h2>\n", to);
        weft_bars_print(&look, bars, n, to);
        if (runs->n == 1) print_taken(&runs->runs[0], to);
    }
    free(bars);
}

/* ---- time ---- */

static void weft_section_time(const weft_comparison *runs, FILE *to) {
    static const char *const names[] = {"compute", "communication", "evaluation", "checkpoints", "start and else"};
    static const int colours[] = {0, 2, 4, 1, 9};
    const weft_bars look = {names, colours, WEFT_N_TIMES, NULL, false};
    weft_bar *bars = weft_alloc(runs->n, sizeof *bars);
    for (size_t i = 0; i < runs->n; i++) {
        char text[WEFT_UNIT_SIZE];
        const weft_digest *digest = &runs->digests[i];
        (void)snprintf(bars[i].name, sizeof bars[i].name, "%s", runs->n > 1 ? runs->names[i] : "the whole run");
        memcpy(bars[i].parts, digest->times, sizeof digest->times);
        bars[i].mark = (double)NAN;
        (void)snprintf(bars[i].total, sizeof bars[i].total, "%s",
                       isnan(digest->seconds) ? "?" : weft_unit_seconds(text, digest->seconds));
    }
    (void)fputs("<h2>Time <small>on rank 0; communication is time in exchanges, waiting for other ranks included"
                "</small></h2>\n",
                to);
    weft_bars_print(&look, bars, runs->n, to);
    free(bars);
}

static void fill_phases(weft_bar *bar, const char *name, const double *phases) {
    char text[WEFT_UNIT_SIZE];
    double sum = 0.0;
    memset(bar, 0, sizeof *bar);
    (void)snprintf(bar->name, sizeof bar->name, "%s", name);
    for (int i = 0; i < WEFT_N_PAST_PHASES; i++) sum += bar->parts[i] = phases[i];
    bar->mark = (double)NAN;
    (void)snprintf(bar->total, sizeof bar->total, "%s", weft_unit_seconds(text, sum));
}

/* Before the first all-rank record, uses rank 0's records of steps. */
static size_t fill_phases_of_all(weft_bar *bars, const weft_past_run *run) {
    double own[WEFT_N_PAST_PHASES] = {0.0};
    size_t n = 0;
    for (; n < run->n_ranks && n < MOST_BARS; n++) {
        char name[32];
        (void)snprintf(name, sizeof name, "rank %zu", n);
        fill_phases(&bars[n], name, run->ranks[n].phases);
    }
    if (n > 0) return n;
    for (size_t i = 0; i < run->n_steps; i++)
        for (int p = 0; p < WEFT_N_PAST_PHASES; p++) own[p] += run->steps[i].phases[p];
    fill_phases(bars, "rank 0", own);
    return 1;
}

static void weft_section_ranks(const weft_past_run *run, FILE *to) {
    static const int colours[WEFT_N_PAST_PHASES] = {8, 7, 3, 0, 4, 2, 6, 1, 9};
    const char *names[WEFT_N_PAST_PHASES];
    const weft_bars look = {names, colours, WEFT_N_PAST_PHASES, NULL, false};
    weft_bar *bars = weft_alloc(MOST_BARS, sizeof *bars);
    for (int32_t i = 0; i < WEFT_N_PAST_PHASES; i++) names[i] = weft_past_phase_name(i);
    (void)fprintf(to, "<h2>Steps by phase and rank <small>%s</small></h2>\n",
                  run->n_ranks > MOST_BARS ? "the first 64 ranks" : "of the optimizer steps only");
    weft_bars_print(&look, bars, fill_phases_of_all(bars, run), to);
    free(bars);
}

/* Charts over steps for one or several runs. */

/* Lines of several runs, and their values. */
typedef struct lines {
    weft_series *series;
    double **numbers;
    size_t n, n_numbers;
} lines;

static lines make_lines(const weft_comparison *runs) {
    return (lines){.series = weft_alloc(3 * runs->n, sizeof(weft_series)),
                   .numbers = weft_alloc(6 * runs->n, sizeof(double *))};
}

static void free_lines(lines *self) {
    for (size_t i = 0; i < self->n_numbers; i++) free(self->numbers[i]);
    free(self->numbers);
    free(self->series);
}

/* Copies a column of an array of structs of doubles. */
static double *take_column(lines *self, const void *rows, size_t n, size_t stride, size_t offset) {
    double *out = self->numbers[self->n_numbers++] = weft_alloc(n, sizeof *out);
    for (size_t i = 0; i < n; i++) memcpy(&out[i], (const char *)rows + i * stride + offset, sizeof *out);
    return out;
}

/* Exponential moving average over about a fiftieth of the run. */
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

#define STEPS(field) take_column(self, run->steps, run->n_steps, sizeof *run->steps, offsetof(weft_past_step, field))
#define EVALUATIONS(field)                                                                                             \
    take_column(self, run->evaluations, run->n_evaluations, sizeof *run->evaluations,                                  \
                offsetof(weft_past_evaluation, field))

/* Adds losses: for one run the values and their mean, for several runs only the means. */
static void add_losses(lines *self, const weft_comparison *runs, size_t i) {
    const weft_past_run *run = &runs->runs[i];
    const bool alone = runs->n == 1;
    double *mean = STEPS(loss);
    const double *x = STEPS(step);
    smooth(mean, run->n_steps);
    if (alone)
        self->series[self->n++] = (weft_series){"each step", 0, WEFT_LOOK_FAINT, x, STEPS(loss), run->n_steps, false};
    self->series[self->n++] = (weft_series){
        alone ? "training" : runs->names[i], (int)i, WEFT_LOOK_LINE, x, mean, run->n_steps, i + 1 < runs->n};
    if (run->n_evaluations > 0)
        self->series[self->n++] = (weft_series){alone ? "evaluation" : runs->names[i],
                                                alone ? 2 : (int)i,
                                                WEFT_LOOK_DOTS,
                                                EVALUATIONS(step),
                                                EVALUATIONS(loss),
                                                run->n_evaluations,
                                                false};
}

static void print_losses(const weft_comparison *runs, FILE *to) {
    weft_chart chart = {.title = "Loss", .about = "mean over target tokens; dots: evaluation", .wide = true};
    lines all = make_lines(runs);
    for (size_t i = 0; i < runs->n; i++) add_losses(&all, runs, i);
    chart.series = all.series;
    chart.n = all.n;
    weft_chart_print(&chart, to);
    free_lines(&all);
}

/* Prints a chart of one number of each run's steps. */
static void print_field(const weft_comparison *runs, weft_chart *chart, size_t offset, bool smoothed, FILE *to) {
    lines all = make_lines(runs), *self = &all;
    for (size_t i = 0; i < runs->n; i++) {
        const weft_past_run *run = &runs->runs[i];
        double *y = take_column(self, run->steps, run->n_steps, sizeof *run->steps, offset);
        if (smoothed) smooth(y, run->n_steps);
        self->series[self->n++] =
            (weft_series){runs->names[i], (int)i, WEFT_LOOK_LINE, STEPS(step), y, run->n_steps, i + 1 < runs->n};
    }
    chart->series = all.series;
    chart->n = all.n;
    weft_chart_print(chart, to);
    free_lines(self);
}

static void weft_section_charts(const weft_comparison *runs, FILE *to) {
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

/* Sections about a single run: evaluations and saves, configuration, starts. */

/* ---- evaluations and saves ---- */

enum { MOST_ROWS = 200 };

/* True if the checkpoint step-N still exists. */
static bool is_kept(const weft_past_run *run, double step) {
    char path[4096];
    struct stat about;
    (void)snprintf(path, sizeof path, "%s/checkpoints/step-%.0f", run->directory, step);
    return stat(path, &about) == 0;
}

static void print_save(const weft_past_run *run, const weft_past_save *save, bool best, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    if (save->is_model) (void)fprintf(to, "<td>result saved in <code>model/</code>");
    else
        (void)fprintf(to, "<td>checkpoint%s%s", best ? ", <b>the best</b>" : "",
                      is_kept(run, save->step) ? "" : ", no longer kept");
    (void)fprintf(to, "</td><td class=n>%s</td></tr>\n", weft_unit_seconds(text, save->took));
}

static void print_evaluation(const weft_past_evaluation *one, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    (void)fprintf(to, "<td>evaluation loss %.4f", one->loss);
    if (!isnan(one->perplexity)) (void)fprintf(to, ", perplexity %.2f", one->perplexity);
    if (!isnan(one->similarity)) (void)fprintf(to, ", similarity %.4g", one->similarity);
    (void)fprintf(to, "</td><td class=n>%s</td></tr>\n", isnan(one->took) ? "" : weft_unit_seconds(text, one->took));
}

static void print_place(double step, double seconds, FILE *to) {
    char text[WEFT_UNIT_SIZE];
    (void)fprintf(to, "<tr><td class=n>%.0f</td><td class=n>%s</td>", step,
                  isnan(seconds) ? "" : weft_unit_seconds(text, seconds));
}

/* Prints evaluations and saves in order of steps. */
static void print_happenings(const weft_past_run *run, double best, FILE *to) {
    size_t e = 0, s = 0;
    while ((e < run->n_evaluations || s < run->n_saves) && e + s < MOST_ROWS) {
        const bool save = e == run->n_evaluations ||
                          (s < run->n_saves && run->saves[s].step < run->evaluations[e].step);
        if (save) print_place(run->saves[s].step, run->saves[s].seconds, to);
        else print_place(run->evaluations[e].step, run->evaluations[e].seconds, to);
        if (save) print_save(run, &run->saves[s], run->saves[s].step == best, to);
        else print_evaluation(&run->evaluations[e], to);
        if (save) s++;
        else e++;
    }
}

static void weft_section_saves(const weft_past_run *run, FILE *to) {
    weft_digest digest;
    const size_t n = run->n_evaluations + run->n_saves;
    if (n == 0) return;
    weft_digest_make(&digest, run);
    (void)fprintf(to,
                  "<h2>Evaluations and checkpoints <small>%zu of %zu</small></h2>\n"
                  "<div class=\"card scroll\"><table><tr><th class=n>step</th><th class=n>at</th><th></th>"
                  "<th class=n>took</th></tr>\n",
                  n < MOST_ROWS ? n : (size_t)MOST_ROWS, n);
    print_happenings(run, digest.best_step, to);
    (void)fputs("</table></div>\n", to);
}

/* ---- the configuration ---- */

static bool is_default(const json_t *entry) {
    return strcmp(weft_past_text(entry, NULL, "source"), "default") == 0;
}

static void print_key(const weft_past_run *run, const json_t *entry, FILE *to) {
    char value[2048];
    const char *key = weft_past_text(entry, NULL, "key"), *source = "";
    (void)weft_past_config(run, key, value, sizeof value, &source);
    (void)fputs("<tr><td class=key><code>", to);
    weft_html_text(to, key);
    (void)fputs("</code></td><td class=\"value mono\">", to);
    weft_html_text(to, *value == '\0' ? "\"\"" : value);
    (void)fputs("</td><td class=from>", to);
    weft_html_text(to, source);
    (void)fputs(json_is_true(json_object_get(entry, "idle")) ? ", idle</td></tr>\n" : "</td></tr>\n", to);
}

static size_t print_keys(const weft_past_run *run, const json_t *config, bool defaults, FILE *to) {
    size_t n = 0;
    (void)fputs("<table><tr><th>key</th><th>value</th><th>from</th></tr>\n", to);
    for (size_t i = 0; i < json_array_size(config); i++) {
        const json_t *entry = json_array_get(config, i);
        if (is_default(entry) != defaults) continue;
        print_key(run, entry, to);
        n++;
    }
    (void)fputs("</table>\n", to);
    return n;
}

static void weft_section_config(const weft_past_run *run, FILE *to) {
    const json_t *config = json_object_get(weft_past_start(run), "config");
    size_t defaults = 0;
    if (!json_is_array(config)) return;
    for (size_t i = 0; i < json_array_size(config); i++) defaults += is_default(json_array_get(config, i));
    (void)fputs("<h2>Configuration <small>each key with its source</small></h2>\n<div class=\"card scroll\">", to);
    (void)print_keys(run, config, false, to);
    (void)fprintf(to, "<details><summary>%zu keys at their defaults</summary>\n", defaults);
    (void)print_keys(run, config, true, to);
    (void)fputs("</details></div>\n", to);
}

/* ---- starts ---- */

static void print_start(const json_t *start, FILE *to) {
    char text[64] = "";
    struct tm parts;
    const time_t at = (time_t)json_number_value(json_object_get(start, "time"));
    const double ranks = weft_past_number(start, "run", "world");
    if (localtime_r(&at, &parts) != NULL) (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
    (void)fprintf(to, "<tr><td class=key>%s</td><td>%s step %lld</td><td class=n>%.0f</td><td>", text,
                  json_is_true(json_object_get(start, "resumed")) ? "resumed from" : "began at",
                  (long long)json_integer_value(json_object_get(start, "step")), isnan(ranks) ? 1.0 : ranks);
    weft_html_text(to, weft_past_text(start, NULL, "host"));
    (void)fputs(", ", to);
    weft_html_text(to, weft_past_text(start, "device", "name"));
    (void)fputs(", ", to);
    weft_html_text(to, weft_past_text(start, "device", "backend"));
    (void)fprintf(to, ", %.0f threads</td><td>", weft_past_number(start, "device", "threads"));
    weft_html_text(to, weft_past_text(start, NULL, "weft"));
    (void)fputs("</td></tr>\n", to);
}

static void weft_section_starts(const weft_past_run *run, FILE *to) {
    if (json_array_size(run->starts) == 0) return;
    (void)fputs("<h2>Where it ran</h2>\n<div class=\"card scroll\"><table><tr><th>started</th><th></th>"
                "<th class=n>ranks</th><th>machine of rank 0</th><th>Weft</th></tr>\n",
                to);
    for (size_t i = 0; i < json_array_size(run->starts); i++) print_start(json_array_get(run->starts, i), to);
    (void)fputs("</table></div>\n", to);
}

/* ---- the complete page ---- */

static void print_names(const weft_comparison *self, FILE *to) {
    for (size_t i = 0; i < self->n; i++) {
        if (i > 0) (void)fputs(", ", to);
        weft_html_text(to, self->names[i]);
    }
}

static void print_head(const weft_comparison *self, FILE *to) {
    char title[512] = "";
    for (size_t i = 0; i < self->n; i++)
        weft_words_append(title, sizeof title, "%s%s", i > 0 ? ", " : "", self->names[i]);
    weft_html_begin(to, title);
}

/* "llama, 973,184 parameters; fsdp full on 3 ranks, fp32; step 40 of 40" */
static void print_subtitle(const weft_comparison *self, FILE *to) {
    const weft_past_run *run = &self->runs[0];
    const weft_digest *digest = &self->digests[0];
    const json_t *start = weft_past_start(run);
    const double parameters = weft_past_number(start, "model", "parameters");
    const char *model = weft_past_text(json_object_get(start, "run"), "plugins", "model");
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE];
    (void)fputs("<p class=soft>", to);
    if (start != NULL && !isnan(parameters)) {
        weft_html_text(to, model);
        (void)fprintf(to, ", %s parameters &middot; ", weft_unit_count(a, (int64_t)parameters));
        weft_html_text(to, digest->strategy);
        (void)fprintf(to, " on %s, %s &middot; ", weft_unit_counted(b, (int64_t)digest->ranks, "rank"),
                      digest->precision);
    }
    if (digest->finished) (void)fprintf(to, "finished after %.0f steps", digest->steps);
    else if (isnan(digest->all_steps)) (void)fprintf(to, "step %.0f", digest->steps);
    else (void)fprintf(to, "step %.0f of %.0f: running, or stopped", digest->steps, digest->all_steps);
    if (!isnan(digest->epochs)) (void)fprintf(to, ", %.3g epochs", digest->epochs);
    (void)fputs("</p>\n", to);
}

static void print_footer(const weft_comparison *self, FILE *to) {
    double last = 0.0;
    char text[64];
    time_t at = 0;
    struct tm parts;
    for (size_t i = 0; i < self->n; i++) last = fmax(last, self->runs[i].last_time);
    at = (time_t)last;
    if (at == 0 || localtime_r(&at, &parts) == NULL || strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %z", &parts) == 0)
        (void)snprintf(text, sizeof text, "at a time that is not known");
    (void)fprintf(to,
                  "<footer>Written by <code>weft report</code> of Weft %s. The last record is of %s.</footer>\n"
                  "</main></body></html>\n",
                  WEFT_VERSION, text);
}

static void print_one(const weft_comparison *self, FILE *to) {
    (void)fputs("<p class=mark>Weft &middot; run</p>\n<h1>", to);
    print_names(self, to);
    (void)fputs("</h1>\n", to);
    print_subtitle(self, to);
    weft_section_tiles(&self->digests[0], to);
    weft_section_notes(self, to);
    weft_section_charts(self, to);
    weft_section_memory(self, to);
    weft_section_time(self, to);
    weft_section_ranks(&self->runs[0], to);
    weft_section_saves(&self->runs[0], to);
    weft_section_config(&self->runs[0], to);
    weft_section_starts(&self->runs[0], to);
}

static void print_several(const weft_comparison *self, FILE *to) {
    (void)fprintf(to, "<p class=mark>Weft &middot; %zu runs side by side</p>\n<h1>", self->n);
    print_names(self, to);
    (void)fputs("</h1>\n", to);
    weft_section_notes(self, to);
    weft_section_scaling(self, to);
    weft_section_differences(self, to);
    weft_section_charts(self, to);
    weft_section_memory(self, to);
    weft_section_time(self, to);
}

weft_status weft_page_save(const weft_comparison *runs, const char *path, weft_error *err) {
    weft_file file;
    FILE *to = weft_file_begin(&file, path, err);
    if (to == NULL) return WEFT_E_SYSTEM;
    print_head(runs, to);
    if (runs->n == 1) print_one(runs, to);
    else print_several(runs, to);
    print_footer(runs, to);
    return weft_file_commit(&file, err);
}
