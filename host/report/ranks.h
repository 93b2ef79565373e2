/* host/report/ranks.h: what each rank of a run took and sent, told by rank 0: a table, and ranks.json beside the
 * records. */
#ifndef WEFT_HOST_REPORT_RANKS_H
#define WEFT_HOST_REPORT_RANKS_H

#include "program/overlap.h"
#include "train/session.h"

/* Of one rank. Bytes, but for the last ones. */
typedef struct weft_rank_report {
    int64_t planned, taken;             /* from the device */
    int64_t line[WEFT_N_ACCOUNT_LINES]; /* of that, now */
    int64_t live;                       /* bytes of the arena that were in use at most */
    int64_t resident, peak;             /* of the process, now and at most */
    int64_t steps;                      /* that were counted */
    int64_t sent[WEFT_N_TRAFFIC];
    weft_overlap overlap;
} weft_rank_report;

typedef struct weft_ranks_report {
    int32_t world;
    weft_rank_report *ranks; /* [world]; whole on rank 0 alone */
    int64_t *to;             /* [world][world] by sender; NULL where there is one rank */
} weft_ranks_report;

/* To be freed also after a failure. [collective] */
weft_status weft_ranks_collect(weft_ranks_report *out, const weft_session *session, const weft_overlap *overlap,
                               weft_error *err);
void weft_ranks_report_free(weft_ranks_report *self);

/* Both of rank 0. Nothing is printed of a rank alone. */
void weft_ranks_print(const weft_ranks_report *self, FILE *to);
weft_status weft_ranks_save(const weft_ranks_report *self, const char *path, weft_error *err);

#endif
