/* host/report/summary.h: what is said before a run begins and after it has ended. */
#ifndef WEFT_HOST_REPORT_SUMMARY_H
#define WEFT_HOST_REPORT_SUMMARY_H

#include "report/moment.h"
#include "report/world_line.h"

/* Times are apart, so that a slow disk does not look like slow training. */
typedef struct weft_train_summary {
    double begin; /* weft_clock_seconds at the start of the process's work */
    weft_run_result result;
    int64_t tokens;
    double compute_seconds, data_seconds, evaluate_seconds, checkpoint_seconds;
    int64_t evaluations;
    double first_eval_loss, last_eval_loss; /* where there are any */
    int64_t first_eval_step;                /* of a resumed run that from which it goes on, or a later one */
    double similarity;                      /* of the last evaluation; NaN: not measured */
    const char *model_path;
} weft_train_summary;

/* A warning where the schedule is surely not meant so. */
void weft_schedule_warn(const weft_session *session);
/* What scaling with the batch makes of the learning rate; nothing where it is not scaled. */
void weft_lr_print(const weft_session *session, int width, FILE *to);

/* planned: of weft_moments_collect. verbose: plugins, wrapping, world, sums and stages too. */
void weft_train_header_print(const weft_session *session, const weft_moment *planned, bool verbose, FILE *to);
void weft_train_summary_print(const weft_train_summary *summary, const weft_session *session, bool verbose, FILE *to);

#endif
