/* host/train/journal.h: the records of a run: one JSON-lines file per kind in its directory, written by rank 0. Every
 * rank measures its own times, which are gathered at saves and at the end. A line begins with {"step": N, ... Lines are
 * appended. A run that resumes at step N first truncates every file to its lines at N, so that no line describes
 * discarded work. docs/records.md has the fields.
 *
 *     starts.jsonl        per training process: its request and its plan
 *     metrics.jsonl       per optimizer step, or every [run] metrics_every
 *     evaluations.jsonl   per evaluation
 *     checkpoints.jsonl   per save
 *     phases.jsonl        per save and at the end: each rank's time by phase, and its memory
 *     tensorboard/        with [run] tensorboard: scalars by step, a file events.out.tfevents.* per training process */
#ifndef WEFT_HOST_TRAIN_JOURNAL_H
#define WEFT_HOST_TRAIN_JOURNAL_H

#include "run/checkpoint.h"
#include "run/values.h"
#include "train/summary.h"

typedef enum weft_record_kind {
    WEFT_RECORD_STARTS = 0,
    WEFT_RECORD_METRICS = 1,
    WEFT_RECORD_EVALUATIONS = 2,
    WEFT_RECORD_CHECKPOINTS = 3,
    WEFT_RECORD_PHASES = 4,
    WEFT_N_RECORDS = 5
} weft_record_kind;

const char *weft_record_name(int32_t kind); /* "metrics.jsonl" */

typedef struct weft_journal {
    const weft_session *session;
    const char *directory;       /* of the run; must outlive the journal */
    FILE *files[WEFT_N_RECORDS]; /* open only on rank 0 */
    double begin;                /* weft_clock_seconds at this process's start, minus the time of earlier processes */
    FILE *events;                /* for TensorBoard; NULL: none */
    char events_path[4096];
    weft_rank_row since_line; /* totals since the last line of metrics, */
    int64_t targets;          /* and their target tokens */
    weft_rank_row since_row;  /* of this rank, since the last line of phases */
} weft_journal;

/* Opens the records in `directory` on rank 0, truncates them to the checkpoint that this process resumed from (NULL:
 * new run), and records the start. begin: weft_clock_seconds at this process's start. Close it also after a failure.
 * [collective] */
weft_status weft_journal_open(weft_journal *self, const weft_session *session, const char *directory,
                              const weft_checkpoint_state *resumed_from, double begin, weft_error *err);
void weft_journal_close(weft_journal *self); /* a zeroed one is fine */

/* Appends {"step": step, FIELDS, "seconds": ..., "time": ...} with one write. fields: JSON without braces. */
weft_status weft_journal_add(weft_journal *self, int32_t kind, uint64_t step, const char *fields, weft_error *err);
/* Syncs all files to disk. */
weft_status weft_journal_sync(weft_journal *self, weft_error *err);

/* Records a step that took `seconds`, and reads its trace. Writes a line if one is due. */
weft_status weft_journal_step(weft_journal *self, uint64_t step, const weft_step_result *result, double seconds,
                              weft_error *err);
weft_status weft_journal_evaluation(weft_journal *self, uint64_t step, const weft_evaluation *evaluation,
                                    weft_error *err);
/* Records each rank's time by phase since the last such line; skipped without steps. May fail on rank 0 only.
 * [collective] */
weft_status weft_journal_phases(weft_journal *self, uint64_t step, weft_error *err);

#endif
