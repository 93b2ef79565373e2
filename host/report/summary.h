/* host/report/summary.h: the header before a run and the summary after it. */
#ifndef WEFT_HOST_REPORT_SUMMARY_H
#define WEFT_HOST_REPORT_SUMMARY_H

#include "report/per_rank.h"
#include "report/world_line.h"

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
