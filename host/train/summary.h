/* host/train/summary.h: descriptions of a run: device, plugins, ranks, strategy, header and summary; memory, traffic
 * and overlap of each rank as a table and as ranks.json in the run's directory. */
#ifndef WEFT_HOST_TRAIN_SUMMARY_H
#define WEFT_HOST_TRAIN_SUMMARY_H

#include "program/execute.h"
#include "run/session.h"
#include "train/progress.h"

#include <jansson.h>
#include <stdio.h>

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

/* Gathers the snapshots of all ranks, which the caller frees, also after a failure: [world] on rank 0, which receives
 * all of them; on the others only their own is set. [collective] */
weft_status weft_memory_snapshots_collect(weft_memory_snapshot **out, const weft_session *session, weft_error *err);

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

/* ---- lines ---- */

/* Prints the device in one line; indent: column of its name. */
void weft_device_line_print(const weft_device_info *info, int indent, FILE *to);

/* Result of a run, over the steps of this process. */
typedef struct weft_run_result {
    int64_t steps;
    double first_loss, last_loss; /* training loss */
    double last_lr;
} weft_run_result;

/* Returns precision, plugins, the world and the strategy's settings; result: of the finished run, NULL before. */
json_t *weft_run_object(const weft_session *session, const weft_run_result *result);

/* Prints ranks, nodes, the strategy with its settings, replicas and micro-batches. width: of the labels. */
void weft_world_print(const weft_session *session, int width, FILE *to);
/* Prints a notice if a strategy for several ranks runs on one. */
void weft_world_log_single_rank(const weft_session *session);
/* Prints how the micro-batches' gradients are summed, and whether the sum is deterministic across ranks. */
void weft_sums_print(const weft_session *session, int width, FILE *to);

/* Times are separate, so that a slow disk does not appear as slow training. */
typedef struct weft_train_summary {
    double begin; /* weft_clock_seconds at the start of the process's work */
    weft_run_result result;
    int64_t tokens;
    double compute_seconds, data_seconds, evaluate_seconds, checkpoint_seconds;
    int64_t evaluations;
    double first_eval_loss, last_eval_loss; /* if there are evaluations */
    int64_t first_eval_step;                /* of a resumed run: its start step, or a later one */
    double similarity;                      /* of the last evaluation; NaN: unmeasured */
    const char *model_path;
} weft_train_summary;

/* Warns about a schedule that is certainly unintended. */
void weft_schedule_warn(const weft_session *session);
/* Prints the learning rate after scaling by the batch; no output without scaling. */
void weft_lr_print(const weft_session *session, int width, FILE *to);

/* Prints the header. planned: of weft_memory_snapshots_collect. verbose: plugins, wrapping, world, sums and stages
 * too. */
void weft_train_header_print(const weft_session *session, const weft_memory_snapshot *planned, bool verbose, FILE *to);
void weft_train_summary_print(const weft_train_summary *summary, const weft_session *session, bool verbose, FILE *to);

#endif
