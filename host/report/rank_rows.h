/* host/report/rank_rows.h: gathers one row of figures per rank to rank 0 as JSON: planned memory, time by phase, and
 * memory in use. */
#ifndef WEFT_HOST_REPORT_RANK_ROWS_H
#define WEFT_HOST_REPORT_RANK_ROWS_H

#include "program/phases.h"
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

#endif
