/* host/report/tables.h: tables of a run that are printed where they are asked for, once, before its first step. */
#ifndef WEFT_HOST_REPORT_TABLES_H
#define WEFT_HOST_REPORT_TABLES_H

#include "run/session.h"

/* A mask of these. */
typedef enum weft_shown {
    WEFT_SHOWN_WRAPPING = 1, /* every module with its unit */
    WEFT_SHOWN_SHARDING = 2, /* how much of the first and last parameters this rank keeps */
    WEFT_SHOWN_SAMPLES = 4   /* rows of the step, and the ids with which they begin */
} weft_shown;

weft_status weft_tables_print(const weft_session *session, uint32_t tables, int64_t step, FILE *to, weft_error *err);

#endif
