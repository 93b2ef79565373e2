/* host/train/records.h: the records of a run: one JSON-lines file per kind in its directory. Each line begins with
 * {"step": N, ... Lines are appended. A run that resumes at step N first truncates every file to its lines at N, so
 * that no line describes discarded work. docs/records.md has the fields.
 *
 *     starts.jsonl        per training process: its request and its plan
 *     metrics.jsonl       per optimizer step, or every [run] metrics_every
 *     evaluations.jsonl   per evaluation
 *     checkpoints.jsonl   per save
 *     phases.jsonl        per save and at the end: each rank's time by phase, and its memory
 *     tensorboard/        with [run] tensorboard: scalars by step, a file events.out.tfevents.* per training process */
#ifndef WEFT_HOST_TRAIN_RECORDS_H
#define WEFT_HOST_TRAIN_RECORDS_H

#include <stdbool.h>
#include <stdio.h>
#include <weft/base.h>
#include <weft/host.h>

typedef enum weft_record_kind {
    WEFT_RECORD_STARTS = 0,
    WEFT_RECORD_METRICS = 1,
    WEFT_RECORD_EVALUATIONS = 2,
    WEFT_RECORD_CHECKPOINTS = 3,
    WEFT_RECORD_PHASES = 4,
    WEFT_N_RECORDS = 5
} weft_record_kind;

const char *weft_record_name(int32_t kind); /* "metrics.jsonl" */

typedef struct weft_records {
    const char *directory; /* of the run; must outlive them. NULL: closed, no output */
    FILE *files[WEFT_N_RECORDS];
    double begin; /* weft_clock_seconds at this process's start, minus the time of earlier processes */
    FILE *events; /* for TensorBoard; NULL: none */
    char events_path[4096];
} weft_records;

/* The end of a resumed run's records. */
typedef struct weft_records_end {
    uint64_t step;
    bool is_evaluated;     /* the checkpoint has the evaluation loss of this step, so the evaluation is not repeated */
    int64_t metrics_every; /* the current [run] metrics_every */
} weft_records_end;

/* Truncates all files to `end` (NULL: to empty) and opens them for appending, and with `tensorboard` a new file of
 * events. A torn last line is dropped silently: a process was killed while it wrote it. Any other invalid line is
 * dropped with a warning. A gap in the steps of metrics.jsonl is a warning, too. begin: start of this process's work.
 * Time continues at the end of the kept lines. Close it also after a failure. */
weft_status weft_records_open(weft_records *self, const char *directory, const weft_records_end *end, double begin,
                              bool tensorboard, const weft_host *host, weft_error *err);
void weft_records_close(weft_records *self); /* a zeroed one is fine */

/* Appends {"step": step, FIELDS, "seconds": ..., "time": ...} with one write. fields: JSON without braces. */
weft_status weft_records_add(weft_records *self, int32_t kind, uint64_t step, const char *fields, weft_error *err);

typedef struct weft_scalar {
    const char *tag; /* "train/loss" */
    double value;
} weft_scalar;

/* Adds an event with the finite ones of n values, at most WEFT_MAX_SCALARS. */
enum { WEFT_MAX_SCALARS = 8 };
weft_status weft_records_add_scalars(weft_records *self, uint64_t step, const weft_scalar *scalars, int32_t n,
                                     weft_error *err);

/* Syncs all files to disk. */
weft_status weft_records_sync(weft_records *self, weft_error *err);

#endif
