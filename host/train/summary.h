/* host/train/summary.h: lines about a run: device, plugins, ranks, strategy; header and summary; slow settings. */
#ifndef WEFT_HOST_TRAIN_SUMMARY_H
#define WEFT_HOST_TRAIN_SUMMARY_H

#include "train/per_rank.h"

#include <stdio.h>

/* Prints the device in one line; indent: column of its name. */
void weft_device_line_print(const weft_device_info *info, int indent, FILE *to);

/* Result of a run, over the steps of this process. */
typedef struct weft_run_result {
    int64_t steps;
    double first_loss, last_loss; /* training loss */
    double last_lr;
} weft_run_result;

/* Prints precision and every plugin in one line; result: of the finished run, NULL before. */
void weft_run_print(const weft_session *session, const weft_run_result *result, int width, FILE *to);
/* Returns the same with the world and the strategy's settings. */
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
