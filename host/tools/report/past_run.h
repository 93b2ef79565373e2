/* host/tools/report/past_run.h: a run's directory read back: its records (train/records.h), as arrays of numbers.
 *
 * The run may be under way, stopped or finished, and its files may be damaged: what can be read is read, and what
 * cannot is told in `notes`. Nothing of the directory is changed. A number that is not there is NaN. */
#ifndef WEFT_HOST_TOOLS_REPORT_PAST_RUN_H
#define WEFT_HOST_TOOLS_REPORT_PAST_RUN_H

#include "report/rank_rows.h"
#include "train/records.h"

/* The parts of a step's time in the order in which they are shown: weft_past_phase_name. */
enum { WEFT_N_PAST_PHASES = WEFT_N_PHASES + 2 };
const char *weft_past_phase_name(int32_t phase); /* "data", "forward", ..., "rest" */

typedef struct weft_past_step {
    double step, loss, lr, norm, tokens, epoch, speed, resident, seconds;
    double phases[WEFT_N_PAST_PHASES]; /* of the steps since the line before, on rank 0 */
} weft_past_step;

typedef struct weft_past_evaluation {
    double step, loss, perplexity, similarity, took, seconds;
} weft_past_evaluation;

typedef struct weft_past_save {
    double step, took, seconds;
    bool best, is_model; /* is_model: the result at the end */
} weft_past_save;

/* A rank: its time of all steps together, its memory at the last of them. */
typedef struct weft_past_rank {
    double phases[WEFT_N_PAST_PHASES];
    double taken, live, libraries, resident, peak;
} weft_past_rank;

enum { WEFT_MAX_NOTES = 8 };

typedef struct weft_past_run {
    char *directory; /* as given, without slashes at its end */
    const char *name;
    weft_past_step *steps;
    size_t n_steps;
    weft_past_evaluation *evaluations;
    size_t n_evaluations;
    weft_past_save *saves;
    size_t n_saves;
    weft_past_rank *ranks;
    size_t n_ranks;
    json_t *starts;            /* array of the objects of starts.jsonl; the last one tells what the run is now */
    double seconds, last_time; /* of the last line of any record */
    char notes[WEFT_MAX_NOTES][400];
    int32_t n_notes;
} weft_past_run;

/* WEFT_E_USER: no run is there. weft_past_run_free also after a failure. */
weft_status weft_past_run_read(weft_past_run *out, const char *directory, weft_error *err);
void weft_past_run_free(weft_past_run *self);

/* The last start; NULL: none was recorded. */
const json_t *weft_past_start(const weft_past_run *self);
/* Of an object inside of objects: weft_past_text(start, "device", "name"); "" or NaN where it is not there. */
const char *weft_past_text(const json_t *object, const char *group, const char *field);
double weft_past_number(const json_t *object, const char *group, const char *field);

#endif
