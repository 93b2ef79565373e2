/* host/report/per_rank.h: what each rank of a run took and sent, told by rank 0: a table, and ranks.json beside the
 * records. */
#ifndef WEFT_HOST_REPORT_PER_RANK_H
#define WEFT_HOST_REPORT_PER_RANK_H

#include "program/overlap.h"
#include "report/moment.h"
#include "report/world_line.h"

/* Of one rank. Bytes, but for the last ones. */
typedef struct weft_rank_report {
    int64_t planned, taken;             /* from the device */
    int64_t line[WEFT_N_ACCOUNT_LINES]; /* of that, now */
    int64_t apart;                      /* of the device's, in its context and its libraries */
    int64_t live;                       /* bytes of the arena that were in use at most */
    int64_t resident, peak;             /* of the process, now and at most */
    int64_t steps;                      /* that were counted */
    int64_t sent[WEFT_N_TRAFFIC];
    weft_overlap overlap;
    int32_t local_rank; /* on its machine */
    char device[64];
    int64_t first_step; /* that this process has made; 0: none */
    weft_moment first;  /* after it */
} weft_rank_report;

typedef struct weft_ranks_report {
    int32_t world;
    weft_rank_report *ranks; /* [world]; whole on rank 0 alone */
    int64_t *to;             /* [world][world] by sender; NULL where there is one rank */
} weft_ranks_report;

/* What a rank has noted while it ran. */
typedef struct weft_rank_notes {
    weft_overlap overlap; /* of its exchanges with its work */
    int64_t first_step;
    weft_moment first;
} weft_rank_notes;

/* To be freed also after a failure. [collective] */
weft_status weft_ranks_collect(weft_ranks_report *out, const weft_session *session, const weft_rank_notes *notes,
                               weft_error *err);
void weft_ranks_report_free(weft_ranks_report *self);

/* Both of rank 0. Nothing is printed of a rank alone. run: of weft_run_object, which stands in front; taken over. */
void weft_ranks_print(const weft_ranks_report *self, FILE *to);
weft_status weft_ranks_save(const weft_ranks_report *self, json_t *run, const char *path, weft_error *err);

#endif
