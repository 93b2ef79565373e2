/* host/report/per_rank.h: memory and traffic of each rank of a run, reported by rank 0 as a table and as ranks.json in
 * the run's directory. */
#ifndef WEFT_HOST_REPORT_PER_RANK_H
#define WEFT_HOST_REPORT_PER_RANK_H

#include "program/timeline.h"
#include "program/execute.h"
#include "report/stages.h"
#include "report/world_line.h"
#include "run/session.h"

#include <jansson.h>

/* A rank's totals since its last row, in seconds; `steps` is the total time of the optimizer steps. */
typedef struct weft_rank_row {
    int64_t n_steps;
    double steps, data; /* data: in the data plugin; also included in the phases */
    double phases[WEFT_N_PHASES];
    int64_t line[WEFT_N_ACCOUNT_LINES]; /* current device bytes by account */
    int64_t live;                       /* peak bytes of the arena in use */
    int64_t apart;                      /* device memory of its context and its libraries */
    int64_t resident, peak, libraries;  /* of the process; libraries: malloc and the plugins */
} weft_rank_row;

/* Sets the memory fields to the current values. */
void weft_rank_row_memory(weft_rank_row *out, const weft_session *session);

/* Returns {"data": ..., "forward": ..., "rest": ...} of one row: the parts sum to `steps`. */
json_t *weft_rank_row_seconds(const weft_rank_row *row);

/* Returns an array of objects in rank order on the first rank; NULL on the others and after a failure. own: this rank's
 * row. [collective] */
weft_status weft_rank_rows_array(json_t **out, const weft_session *session, const weft_rank_row *own, weft_error *err);

/* Gathers the planned bytes by category; consecutive ranks with equal plans share an object with "first" and "last".
 * [collective] */
weft_status weft_planned_array(json_t **out, const weft_session *session, weft_error *err);

/* Report of one rank, in bytes except for the last fields. */
typedef struct weft_rank_report {
    int64_t planned, taken;             /* on the device */
    int64_t line[WEFT_N_ACCOUNT_LINES]; /* of that, now, by account */
    int64_t apart;                      /* device memory of its context and its libraries */
    int64_t live;                       /* peak bytes of the arena in use */
    int64_t resident, peak;             /* of the process, now and at the peak */
    int64_t steps;                      /* counted steps */
    int64_t sent[WEFT_N_TRAFFIC];
    weft_overlap overlap;
    int32_t local_rank; /* on its machine */
    char device[64];
    int64_t first_step;         /* the first step of this process; 0: no step */
    weft_memory_snapshot first; /* after that step */
} weft_rank_report;

typedef struct weft_ranks_report {
    int32_t world;
    weft_rank_report *ranks; /* [world]; complete only on rank 0 */
    int64_t *to;             /* [world][world] by sender; NULL for one rank */
} weft_ranks_report;

/* Measurements of a rank during the run. */
typedef struct weft_rank_notes {
    weft_overlap overlap; /* of its communication with its computation */
    int64_t first_step;
    weft_memory_snapshot first;
} weft_rank_notes;

/* Gathers the reports. Free it also after a failure. [collective] */
weft_status weft_ranks_collect(weft_ranks_report *out, const weft_session *session, const weft_rank_notes *notes,
                               weft_error *err);
void weft_ranks_report_free(weft_ranks_report *self);

/* Both on rank 0. A single rank prints no report. run: of weft_run_object, the head of the file; ownership is
 * transferred. */
void weft_ranks_print(const weft_ranks_report *self, FILE *to);
weft_status weft_ranks_save(const weft_ranks_report *self, json_t *run, const char *path, weft_error *err);

#endif
