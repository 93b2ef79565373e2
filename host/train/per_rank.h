/* host/train/per_rank.h: memory and traffic of each rank of a run, reported by rank 0 as a table and as ranks.json in
 * the run's directory. */
#ifndef WEFT_HOST_TRAIN_PER_RANK_H
#define WEFT_HOST_TRAIN_PER_RANK_H

#include "program/execute.h"
#include "train/progress.h"
#include "run/session.h"

#include <jansson.h>

/* Memory of one rank in bytes. */
typedef struct weft_memory_snapshot {
    int64_t planned, taken;             /* on the device; taken: the peak */
    int64_t line[WEFT_N_ACCOUNT_LINES]; /* on the device, now, by account */
    int64_t live;                       /* peak bytes of the arena in use */
    int64_t apart;                      /* device memory of its context and its libraries */
    int64_t resident, resident_peak;    /* of the process */
    int64_t libraries;                  /* of malloc and the plugins */
} weft_memory_snapshot;

/* Returns {"name": bytes} of numbers [first, n). */
json_t *weft_bytes_object(const int64_t *bytes, int first, int n, const char *(*name)(int32_t index));

/* Gathers a struct of each rank. out: [world], which the caller frees, also after a failure. Rank 0 receives all of
 * them, the others have only their own. [collective] */
weft_status weft_rank_structs_gather(void **out, const weft_engine *engine, const void *own, size_t bytes,
                                     weft_error *err);

/* Gathers the snapshots in the same way. [collective] */
weft_status weft_memory_snapshots_collect(weft_memory_snapshot **out, const weft_session *session, weft_error *err);

/* Prints the planned memory: on rank 0 the maximum with its rank, on any other rank its own. width: of the label. */
void weft_memory_snapshots_print_planned(const weft_memory_snapshot *moments, const weft_session *session, int width,
                                         FILE *to);

/* Prints this rank's memory after a step; on rank 0 of several also the ranks with the least and the most. */
void weft_memory_snapshots_print(const weft_memory_snapshot *moments, const weft_session *session, int64_t step,
                                 weft_progress *to);

/* A rank's totals since its last row, in seconds; `steps` is the total time of the optimizer steps. */
typedef struct weft_rank_row {
    int64_t n_steps;
    double steps, data; /* data: in the data plugin; also included in the phases */
    double phases[WEFT_N_PHASES];
    weft_memory_snapshot memory; /* set by weft_rank_rows_array */
} weft_rank_row;

/* Returns {"data": ..., "forward": ..., "rest": ...} of one row: the parts sum to `steps`. */
json_t *weft_rank_row_seconds(const weft_rank_row *row);

/* Returns an array of objects in rank order on the first rank; NULL on the others and after a failure. row: this
 * rank's. [collective] */
weft_status weft_rank_rows_array(json_t **out, const weft_session *session, const weft_rank_row *row, weft_error *err);

/* Gathers the planned bytes by category; consecutive ranks with equal plans share an object with "first" and "last".
 * [collective] */
weft_status weft_planned_array(json_t **out, const weft_session *session, weft_error *err);

/* ---- overlap of exchanges with other work: measured from a trace, or simulated ---- */

typedef enum weft_overlap_kind {
    WEFT_OVERLAP_GATHER = 0, /* of parameters */
    WEFT_OVERLAP_REDUCE = 1, /* REDUCE, and GATHER of finished sums */
    WEFT_OVERLAP_OTHER = 2,  /* REFRESH, SEND, RECV */
    WEFT_N_OVERLAP = 3
} weft_overlap_kind;

/* Seconds. busy: inside the instruction and its WAIT, including the work on the received data. */
typedef struct weft_overlap {
    double under_way[WEFT_N_OVERLAP]; /* from an instruction's start to its end */
    double busy[WEFT_N_OVERLAP];
} weft_overlap;

/* Returns the kind of an instruction's exchange; -1: it has none. */
int32_t weft_overlap_of(const weft_instruction *instruction);

/* Adds the last pass in the trace, of this program. */
void weft_overlap_add(weft_overlap *overlap, const weft_trace *trace, const weft_program *program);
/* Returns the percentage of the exchange time that the rank spent on other work; 0: no exchange of this kind. */
double weft_overlap_hidden(const weft_overlap *overlap, int32_t kind);
/* Prints the same as a column of a table; "-": no exchange of this kind. */
void weft_overlap_print(const weft_overlap *overlap, int32_t kind, FILE *to);

/* Measurements of a rank during the run. */
typedef struct weft_rank_notes {
    weft_overlap overlap;       /* of its communication with its computation */
    int64_t first_step;         /* the first step of this process; 0: no step */
    weft_memory_snapshot first; /* after that step */
} weft_rank_notes;

typedef struct weft_rank_report {
    weft_memory_snapshot memory;
    weft_rank_notes notes;
    int64_t steps; /* counted steps */
    int64_t sent[WEFT_N_TRAFFIC];
    int32_t local_rank; /* on its machine */
    char device[64];
} weft_rank_report;

typedef struct weft_ranks_report {
    int32_t world;
    weft_rank_report *ranks; /* [world]; complete only on rank 0 */
    int64_t *to;             /* [world][world] by sender; NULL for one rank */
} weft_ranks_report;

/* Gathers the reports. Free it also after a failure. [collective] */
weft_status weft_ranks_collect(weft_ranks_report *out, const weft_session *session, const weft_rank_notes *notes,
                               weft_error *err);
void weft_ranks_report_free(weft_ranks_report *self);

/* Both on rank 0. A single rank prints no report. run: of weft_run_object, the head of the file; ownership is
 * transferred. */
void weft_ranks_print(const weft_ranks_report *self, FILE *to);
weft_status weft_ranks_save(const weft_ranks_report *self, json_t *run, const char *path, weft_error *err);

#endif
