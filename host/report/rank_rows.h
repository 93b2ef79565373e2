/* host/report/rank_rows.h: rows of figures, one per rank, brought to rank 0 and told as JSON: what each has planned,
 * and what its time and memory went to. */
#ifndef WEFT_HOST_REPORT_RANK_ROWS_H
#define WEFT_HOST_REPORT_RANK_ROWS_H

#include "program/phases.h"
#include "run/session.h"

#include <jansson.h>

/* What a rank did since its last row. Seconds; `steps` of them are the whole time of the optimizer steps. */
typedef struct weft_rank_row {
    int64_t n_steps;
    double steps, data; /* data: in the data plugin, which lies in the phases too */
    double phases[WEFT_N_PHASES];
    int64_t line[WEFT_N_ACCOUNT_LINES]; /* bytes taken from the device, now */
    int64_t live;                       /* of the arena's, in use at most */
    int64_t apart;                      /* of the device's, in its context and its libraries */
    int64_t resident, peak, libraries;  /* of the process; libraries: malloc and the plugins */
} weft_rank_row;

/* Fills in what a rank has at this moment: the memory. */
void weft_rank_row_memory(weft_rank_row *out, const weft_session *session);

/* {"data": ..., "forward": ..., "rest": ...} of one row: its parts, which add up to `steps`. */
json_t *weft_rank_row_seconds(const weft_rank_row *row);

/* An array of objects, ranks in order; NULL on all ranks but the first, and with a failure. own: this rank's row.
 * [collective] */
weft_status weft_rank_rows_array(json_t **out, const weft_session *session, const weft_rank_row *own, weft_error *err);

/* Planned bytes by category; neighbours that plan alike share an object, with "first" and "last". The same. */
weft_status weft_planned_array(json_t **out, const weft_session *session, weft_error *err);

#endif
