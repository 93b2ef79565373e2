/* host/train/records.h: the records of a run: a file per kind in its directory, an object per line, each beginning
 * {"step": N, ... Lines are appended; a run that goes on from step N first cuts every file back to what stood at N, so
 * that no line tells of what was not kept. docs/records.md has the fields.
 *
 *     starts.jsonl        per process that trained: what it was asked for, and what it planned
 *     metrics.jsonl       per optimizer step, or every [run] metrics_every
 *     evaluations.jsonl   per evaluation
 *     checkpoints.jsonl   per save
 *     phases.jsonl        per save and at the end: what each rank's time went to, and its memory
 */
#ifndef WEFT_HOST_TRAIN_RECORDS_H
#define WEFT_HOST_TRAIN_RECORDS_H

#include <stdbool.h>
#include <stdio.h>
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
    const char *directory; /* of the run; must outlive them. NULL: not open, and nothing is written */
    FILE *files[WEFT_N_RECORDS];
    double begin; /* weft_clock_seconds at which this process's time begins, less what earlier ones have taken */
} weft_records;

/* Where the records of a run that is resumed end. */
typedef struct weft_records_end {
    uint64_t step;
    bool is_evaluated;     /* the checkpoint has the loss of an evaluation at this step: it is not made again */
    int64_t metrics_every; /* [run] metrics_every of now */
} weft_records_end;

/* Cuts all files back to what belongs to `end` (NULL: to nothing) and opens them to append. A torn last line is dropped
 * silently: a process was killed while it wrote it; any other line that is no record is dropped with a warning. A gap
 * in the steps of metrics.jsonl is a warning, too. begin: of this process's work. Time continues where the kept lines
 * end. To be closed also after a failure. */
weft_status weft_records_open(weft_records *self, const char *directory, const weft_records_end *end, double begin,
                              const weft_host *host, weft_error *err);
void weft_records_close(weft_records *self); /* a zeroed one is fine */

/* Seconds that the run has been at work, all its processes together. */
double weft_records_seconds(const weft_records *self);

/* Appends {"step": step, FIELDS, "seconds": ..., "time": ...} in one piece. fields: as in JSON, without braces. */
weft_status weft_records_add(weft_records *self, int32_t kind, uint64_t step, const char *fields, weft_error *err);

/* All are on the disk. */
weft_status weft_records_sync(weft_records *self, weft_error *err);

#endif
