/* host/tools/report/digest.h: what a run came to, as the numbers that runs are compared by. NaN: not known. */
#ifndef WEFT_HOST_TOOLS_REPORT_DIGEST_H
#define WEFT_HOST_TOOLS_REPORT_DIGEST_H

#include "tools/report/past_run.h"

/* Where the run's time went, on rank 0. */
typedef enum weft_past_time {
    WEFT_TIME_COMPUTE = 0, /* steps without what is exchanged */
    WEFT_TIME_COMMUNICATION = 1,
    WEFT_TIME_EVALUATION = 2,
    WEFT_TIME_CHECKPOINT = 3, /* the result at the end too */
    WEFT_TIME_START = 4,      /* and all else: reading, planning, loading */
    WEFT_N_TIMES = 5
} weft_past_time;
const char *weft_past_time_name(int32_t time); /* "compute" */

typedef struct weft_digest {
    double steps, all_steps, epochs;
    double seconds, times[WEFT_N_TIMES];
    double step_seconds;          /* of one step */
    double speed;                 /* targets per second, while training */
    double first_loss, last_loss; /* last: mean of the last tenth of the lines, at most 20 */
    double eval_loss, best_loss;  /* last, lowest */
    double best_step;
    double similarity; /* of the last evaluation */
    double ranks, replicas, micro_batches, global_batch, micro_batch, lr;
    double planned;  /* bytes of the rank that takes most */
    double resident; /* the same, of its process at most; NaN before the first save: rank 0's of metrics */
    bool finished;
    char strategy[64], precision[16];
} weft_digest;

void weft_digest_make(weft_digest *out, const weft_past_run *run);

#endif
