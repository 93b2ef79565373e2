/* host/tools/report/comparison.h: comparison of runs: costs, results, and differing configuration keys. */
#ifndef WEFT_HOST_TOOLS_REPORT_COMPARISON_H
#define WEFT_HOST_TOOLS_REPORT_COMPARISON_H

#include "train/journal.h"

#include <stdbool.h>
#include <stdio.h>
#include <weft/base.h>

/* Reads the records of a run's directory (train/journal.h) as arrays of numbers.
 *
 * The run may be active, stopped or finished, and its files may be damaged: readable lines are used, and `notes` lists
 * the rest. The directory is only read. Missing numbers are NaN. */

/* Parts of a step's time in display order; see weft_past_phase_name. */
enum { WEFT_N_PAST_PHASES = WEFT_N_PHASES + 2 };
const char *weft_past_phase_name(int32_t phase); /* "data", "forward", ..., "rest" */

typedef struct weft_past_step {
    double step, loss, lr, norm, tokens, epoch, speed, resident, seconds;
    double phases[WEFT_N_PAST_PHASES]; /* of the steps since the previous record, on rank 0 */
} weft_past_step;

typedef struct weft_past_evaluation {
    double step, loss, perplexity, similarity, took, seconds;
} weft_past_evaluation;

typedef struct weft_past_save {
    double step, took, seconds;
    bool best, is_model; /* is_model: the final model */
} weft_past_save;

/* A rank's total time over all steps, and its memory at the last of them. */
typedef struct weft_past_rank {
    double phases[WEFT_N_PAST_PHASES];
    double taken, live, libraries, resident, peak;
} weft_past_rank;

enum { WEFT_MAX_NOTES = 8 };

typedef struct weft_past_run {
    char *directory; /* as passed, without trailing slashes */
    const char *name;
    weft_past_step *steps;
    size_t n_steps;
    weft_past_evaluation *evaluations;
    size_t n_evaluations;
    weft_past_save *saves;
    size_t n_saves;
    weft_past_rank *ranks;
    size_t n_ranks;
    json_t *starts;            /* array of the objects of starts.jsonl; the last one is current */
    double seconds, last_time; /* of the last record in any file */
    char notes[WEFT_MAX_NOTES][400];
    int32_t n_notes;
} weft_past_run;

/* WEFT_E_USER: no run found. Call weft_past_run_free also after a failure. */
weft_status weft_past_run_read(weft_past_run *out, const char *directory, weft_error *err);
void weft_past_run_free(weft_past_run *self);

/* Returns the last start; NULL: no start was recorded. */
const json_t *weft_past_start(const weft_past_run *self);
/* Return a field of a nested object: weft_past_text(start, "device", "name"); "" or NaN if missing. */
const char *weft_past_text(const json_t *object, const char *group, const char *field);
double weft_past_number(const json_t *object, const char *group, const char *field);

/* Summary numbers of a run, used to compare runs. NaN: unknown. */

/* Rank 0's time by activity. */
typedef enum weft_past_time {
    WEFT_TIME_COMPUTE = 0, /* steps without communication */
    WEFT_TIME_COMMUNICATION = 1,
    WEFT_TIME_EVALUATION = 2,
    WEFT_TIME_CHECKPOINT = 3, /* includes the final model */
    WEFT_TIME_START = 4,      /* includes all other time: reading, planning, loading */
    WEFT_N_TIMES = 5
} weft_past_time;

typedef struct weft_digest {
    double steps, all_steps, epochs;
    double seconds, times[WEFT_N_TIMES];
    double step_seconds;          /* per step */
    double speed;                 /* target tokens/s while training */
    double first_loss, last_loss; /* last: mean of the last tenth of the records, at most 20 */
    double eval_loss, best_loss;  /* last, lowest */
    double best_step;
    double similarity; /* of the last evaluation */
    double ranks, replicas, micro_batches, global_batch, micro_batch, lr;
    double planned;  /* bytes of the fullest rank */
    double resident; /* peak of the fullest rank's process; before the first save rank 0's value from metrics */
    bool finished;
    char strategy[64], precision[16];
} weft_digest;

void weft_digest_make(weft_digest *out, const weft_past_run *run);

/* A table of texts, printed for a terminal, as Markdown or as CSV.
 *
 *     weft_sheet sheet;
 *     weft_sheet_begin(&sheet, 3);                 columns
 *     weft_sheet_put(&sheet, "%s", "one");         cell by cell, the header row first
 *     weft_sheet_print(&sheet, stdout, width);
 *     weft_sheet_free(&sheet); */

typedef struct weft_sheet {
    char **cells;
    size_t n, columns;
} weft_sheet;

void weft_sheet_begin(weft_sheet *self, size_t columns);
void weft_sheet_put(weft_sheet *self, const char *format, ...) WEFT_PRINTF(2, 3);
void weft_sheet_free(weft_sheet *self);

size_t weft_sheet_rows(const weft_sheet *self); /* includes the header */
const char *weft_sheet_at(const weft_sheet *self, size_t row, size_t column);

/* Prints aligned columns, the first left-aligned and the others right-aligned. No line is wider than `width` (0:
 * unlimited). Columns that do not fit follow below with their own header; wider texts are truncated with "..". */
void weft_sheet_print(const weft_sheet *self, FILE *to, size_t width);
void weft_sheet_print_markdown(const weft_sheet *self, FILE *to);
void weft_sheet_print_csv(const weft_sheet *self, FILE *to); /* RFC 4180 with \n line ends */

typedef struct weft_comparison {
    const weft_past_run *runs;
    size_t n;
    weft_digest *digests; /* [n]; factors are relative to the first run */
    char (*names)[128];   /* [n], shortest unique names */
} weft_comparison;

/* Runs must outlive it. */
void weft_comparison_make(weft_comparison *out, const weft_past_run *runs, size_t n);
void weft_comparison_free(weft_comparison *self);

/* Fills the scaling table: a row per run, or with `upright` a column. The caller frees filled sheets. */
void weft_comparison_scaling(const weft_comparison *self, weft_sheet *out, bool upright);
/* Fills a row per run of plain numbers: seconds, bytes, counts. Unknown values are empty. */
void weft_comparison_numbers(const weft_comparison *self, weft_sheet *out);
/* Fills a row for each key that differs between runs, after the header. Skips keys with output paths. */
void weft_comparison_differences(const weft_comparison *self, weft_sheet *out);

/* Writes the value of a recorded key as text; false: missing. source: may be NULL. */
bool weft_past_config(const weft_past_run *run, const char *key, char *out, size_t size, const char **source);

/* Writes runs as one self-contained HTML page without scripts. Replaces the file at `path` atomically
 * (page_sections.c). */
weft_status weft_page_save(const weft_comparison *runs, const char *path, weft_error *err);

#endif
