/* host/tools/report/bar_sections.c: what memory and time went to, part by part. */
#include "tools/report/page_sections.h"

#include "base/units.h"
#include "tools/common/bars.h"
#include "tools/common/html.h"

#include <math.h>
#include <stdlib.h>

/* ---- memory ---- */

static const char *const memory_names[] = {"parameters", "gradients", "optimizer", "activations", "workspace", "gaps"};
static const int memory_colours[] = {0, 2, 1, 4, 6, 9};
enum { N_MEMORY = 6, MOST_BARS = 64 };

/* Highest resident memory of the ranks first to last; NaN: none is known. */
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

/* What was taken, beside what was planned, for one run. */
static void say_taken(const weft_past_run *run, FILE *to) {
    char a[WEFT_UNIT_SIZE], b[WEFT_UNIT_SIZE], c[WEFT_UNIT_SIZE];
    const weft_past_rank *rank = run->ranks;
    if (run->n_ranks == 0) return;
    (void)fprintf(
        to,
        "<p class=soft style=\"margin-top:10px\">Rank 0 has taken %s from the device, of which %s of the arena were in "
        "use at most; libraries hold %s beside it.</p>\n",
        weft_unit_bytes(a, (int64_t)rank->taken), weft_unit_bytes(b, (int64_t)rank->live),
        weft_unit_bytes(c, (int64_t)rank->libraries));
}

void weft_section_memory(const weft_comparison *runs, FILE *to) {
    static const weft_bars look = {memory_names, memory_colours, N_MEMORY, "resident at most, the whole process", true};
    weft_bar *bars = calloc(MOST_BARS, sizeof *bars);
    const size_t n = bars == NULL ? 0 : fill_memory_of_all(bars, runs);
    if (n > 0) {
        (void)fputs("<h2>Memory <small>planned by category, at the highest moment of a step</small></h2>\n", to);
        weft_bars_print(&look, bars, n, to);
        if (runs->n == 1) say_taken(&runs->runs[0], to);
    }
    free(bars);
}

/* ---- time ---- */

void weft_section_time(const weft_comparison *runs, FILE *to) {
    static const char *const names[] = {"compute", "communication", "evaluation", "checkpoints", "start and else"};
    static const int colours[] = {0, 2, 4, 1, 9};
    const weft_bars look = {names, colours, WEFT_N_TIMES, NULL, false};
    weft_bar *bars = calloc(runs->n, sizeof *bars);
    for (size_t i = 0; bars != NULL && i < runs->n; i++) {
        char text[WEFT_UNIT_SIZE];
        const weft_digest *digest = &runs->digests[i];
        (void)snprintf(bars[i].name, sizeof bars[i].name, "%s", runs->n > 1 ? runs->names[i] : "the whole run");
        memcpy(bars[i].parts, digest->times, sizeof digest->times);
        bars[i].mark = (double)NAN;
        (void)snprintf(bars[i].total, sizeof bars[i].total, "%s",
                       isnan(digest->seconds) ? "?" : weft_unit_seconds(text, digest->seconds));
    }
    if (bars != NULL) {
        (void)fputs("<h2>Time <small>on rank 0; communication is time in exchanges, waiting for other ranks included"
                    "</small></h2>\n",
                    to);
        weft_bars_print(&look, bars, runs->n, to);
    }
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

/* Before the ranks have come together, what rank 0 says step by step. */
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

void weft_section_ranks(const weft_past_run *run, FILE *to) {
    static const int colours[WEFT_N_PAST_PHASES] = {8, 7, 3, 0, 4, 2, 6, 1, 9};
    const char *names[WEFT_N_PAST_PHASES];
    const weft_bars look = {names, colours, WEFT_N_PAST_PHASES, NULL, false};
    weft_bar *bars = calloc(MOST_BARS, sizeof *bars);
    for (int32_t i = 0; i < WEFT_N_PAST_PHASES; i++) names[i] = weft_past_phase_name(i);
    if (bars != NULL) {
        const size_t n = fill_phases_of_all(bars, run);
        (void)fprintf(to, "<h2>Steps by phase and rank <small>%s</small></h2>\n",
                      run->n_ranks > MOST_BARS ? "the first 64 ranks" : "of the optimizer steps alone");
        weft_bars_print(&look, bars, n, to);
    }
    free(bars);
}
