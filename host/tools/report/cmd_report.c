/* host/tools/report/cmd_report.c: `weft report`: shows past runs in the terminal, as a page, and as tables. */
#include "base/alloc.h"
#include "base/message.h"
#include "base/text.h"
#include "cli/cli.h"
#include "tools/report/comparison.h"
#include "tools/common/messages.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* sparklines: a series of numbers in a few terminal columns. */

enum { WEFT_SPARK_MOST = 60 };

static const char *const blocks[] = {"\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"};
static const char *const signs[] = {"_", ".", "-", "~", "=", "+", "*", "#"};

/* NaN: no finite value. */
static double mean_of(const double *numbers, size_t stride, size_t from, size_t to) {
    double sum = 0.0;
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        const double value = *(const double *)((const char *)numbers + i * stride);
        if (!isfinite(value)) continue;
        sum += value;
        n++;
    }
    return n == 0 ? (double)NAN : sum / (double)n;
}

/* Writes at most `places` characters (up to WEFT_SPARK_MOST), each the mean of a section of the n numbers (`stride`
 * bytes apart), on a scale from low to high. Uses eight block characters with UTF-8, else ASCII. out: 3 *
 * WEFT_SPARK_MOST + 1 bytes. Skips non-finite numbers. */
static void weft_spark(char out[3 * WEFT_SPARK_MOST + 1], const double *numbers, size_t n, size_t stride, size_t places,
                       double low, double high, bool utf8) {
    if (places > WEFT_SPARK_MOST) places = WEFT_SPARK_MOST;
    if (places > n) places = n;
    out[0] = '\0';
    for (size_t i = 0; i < places; i++) {
        const double mean = mean_of(numbers, stride, i * n / places, (i + 1) * n / places);
        const double share = high > low ? (mean - low) / (high - low) : 0.5;
        const int level = share <= 0.0 ? 0 : share >= 1.0 ? 7 : (int)(share * 8.0);
        (void)strcat(out, isnan(mean) ? " " : utf8 ? blocks[level] : signs[level]);
    }
}

static const weft_flag flags[] = {
    {"html", "FILE", false, "File of the page (default: RUN/report.html for one run, no page for several)."},
    {"markdown", NULL, false, "Print the tables as Markdown; write a page only with --html."},
    {"csv", NULL, false, "Print one line of plain numbers per run; write a page only with --html."},
    {NULL, NULL, false, NULL},
};

/* ---- sparklines ---- */

enum { NAME = 16, TAIL = 20 }; /* columns of a name, and of the numbers after a sparkline */

/* Returns the lowest and highest loss of all runs, for a common scale. */
static void loss_range(const weft_comparison *runs, double *low, double *high) {
    *low = *high = (double)NAN;
    for (size_t i = 0; i < runs->n; i++)
        for (size_t k = 0; k < runs->runs[i].n_steps; k++) {
            const double loss = runs->runs[i].steps[k].loss;
            if (!isfinite(loss)) continue;
            if (!(*low <= loss)) *low = loss;
            if (!(*high >= loss)) *high = loss;
        }
}

static void print_sparks(const weft_comparison *runs, const weft_terminal *terminal, FILE *to) {
    char spark[3 * WEFT_SPARK_MOST + 1];
    double low = 0.0, high = 0.0;
    const int width = terminal->width > 0 ? terminal->width : 80;
    const int room = width - NAME - TAIL - 4;
    const size_t places = room < 4 ? 4 : (size_t)room;
    loss_range(runs, &low, &high);
    if (isnan(low)) return;
    (void)fprintf(to, "loss over the steps, all on one scale\n");
    for (size_t i = 0; i < runs->n; i++) {
        const weft_past_run *run = &runs->runs[i];
        if (run->n_steps == 0) continue;
        weft_spark(spark, &run->steps[0].loss, run->n_steps, sizeof *run->steps, places, low, high, terminal->utf8);
        weft_words_print(to, "%-*.*s  %s  %.4f to %.4f\n", NAME, NAME, runs->names[i], spark,
                         runs->digests[i].first_loss, runs->digests[i].last_loss);
    }
    (void)fputc('\n', to);
}

/* ---- tables ---- */

static void print_sheet(weft_sheet *sheet, void (*print)(const weft_sheet *, FILE *)) {
    print(sheet, stdout);
    weft_sheet_free(sheet);
}

static void print_aligned(const weft_sheet *sheet, FILE *to) {
    weft_sheet_print(sheet, to, (size_t)weft_terminal_of(STDOUT_FILENO).width);
}

static void print_tables(const weft_comparison *runs, bool markdown) {
    void (*const print)(const weft_sheet *, FILE *) = markdown ? weft_sheet_print_markdown : print_aligned;
    weft_sheet scaling, differences;
    weft_comparison_scaling(runs, &scaling, !markdown);
    print_sheet(&scaling, print);
    if (runs->n == 1) return;
    weft_comparison_differences(runs, &differences);
    if (weft_sheet_rows(&differences) == 1) {
        (void)printf("\nTheir configurations differ only in the output directories.\n");
        weft_sheet_free(&differences);
        return;
    }
    (void)printf(markdown ? "\nWhat differs in their configurations:\n\n" : "\nwhat differs in their configurations\n");
    print_sheet(&differences, print);
}

static void print_csv(const weft_comparison *runs) {
    weft_sheet sheet;
    weft_comparison_numbers(runs, &sheet);
    print_sheet(&sheet, weft_sheet_print_csv);
}

static void print_notes(const weft_comparison *runs) {
    for (size_t i = 0; i < runs->n; i++)
        for (int32_t n = 0; n < runs->runs[i].n_notes; n++)
            weft_words_print(stderr, "weft report: %s: %s\n", runs->runs[i].directory, runs->runs[i].notes[n]);
}

/* ---- the command ---- */

static weft_status save_page(const weft_comparison *runs, const weft_args *args, bool tables, weft_error *err) {
    const char *asked = weft_args_value(args, "html");
    char path[4096];
    weft_status status = WEFT_OK;
    if (asked == NULL && (tables || runs->n > 1)) {
        if (!tables) (void)printf("\n--html FILE writes a page with all of it\n");
        return WEFT_OK;
    }
    if (asked != NULL) (void)snprintf(path, sizeof path, "%s", asked);
    else (void)snprintf(path, sizeof path, "%s/report.html", runs->runs[0].directory);
    status = weft_page_save(runs, path, err);
    if (status == WEFT_OK && !tables) weft_words_print(stdout, "\npage  %s\n", path);
    return status;
}

static weft_status report_runs(const weft_comparison *runs, const weft_args *args, weft_error *err) {
    const bool markdown = weft_args_has(args, "markdown"), csv = weft_args_has(args, "csv");
    const weft_terminal terminal = weft_terminal_of(STDOUT_FILENO);
    print_notes(runs);
    if (!markdown && !csv) print_sparks(runs, &terminal, stdout);
    if (csv) print_csv(runs);
    else print_tables(runs, markdown);
    return save_page(runs, args, markdown || csv, err);
}

static weft_exit run_report(const weft_args *args, weft_error *err) {
    size_t n = 0, read = 0;
    weft_past_run *runs = NULL;
    weft_comparison comparison = {0};
    weft_status status = WEFT_OK;
    if (weft_args_has(args, "markdown") && weft_args_has(args, "csv")) {
        (void)weft_error_set(err, WEFT_E_USER, "--markdown and --csv print the same numbers: use one of them");
        return WEFT_EXIT_USAGE;
    }
    while (weft_args_extra(args, n) != NULL) n++;
    runs = weft_alloc(n, sizeof *runs);
    while (status == WEFT_OK && read < n) {
        status = weft_past_run_read(&runs[read], weft_args_extra(args, read), err);
        read++; /* counted first, so that a failed read is freed, too */
    }
    if (status == WEFT_OK) weft_comparison_make(&comparison, runs, n);
    if (status == WEFT_OK) status = report_runs(&comparison, args, err);
    weft_comparison_free(&comparison);
    for (size_t i = 0; i < read; i++) weft_past_run_free(&runs[i]);
    free(runs);
    return weft_exit_from(status);
}

static const weft_command weft_command_report = {
    .name = "report",
    .usage = "RUN [RUN ...]",
    .takes = WEFT_TAKES_ARGUMENTS,
    .min_extra = 1,
    .max_extra = -1,
    .flags = flags,
    .more = "RUN is the directory of a run ([run] out), finished or not. The page is one self-contained HTML file. "
            "Factors compare each run with the first.",
    .examples = "  weft report runs/one\n"
                "  weft report runs/one runs/two --csv\n",
    .run = run_report,
};

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_report, NULL};
    return weft_cli_main(argc, argv, commands);
}
