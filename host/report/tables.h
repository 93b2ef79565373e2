/* host/report/tables.h: optional tables of a run, printed once before its first step. */
#ifndef WEFT_HOST_REPORT_TABLES_H
#define WEFT_HOST_REPORT_TABLES_H

#include "run/session.h"

/* Bit mask of tables. */
typedef enum weft_shown {
    WEFT_SHOWN_WRAPPING = 1, /* every module with its unit */
    WEFT_SHOWN_SHARDING = 2, /* this rank's shards of the first and last parameters */
    WEFT_SHOWN_SAMPLES = 4   /* sequences of the step, and their first ids */
} weft_shown;

weft_status weft_tables_print(const weft_session *session, uint32_t tables, int64_t step, FILE *to, weft_error *err);

#endif
