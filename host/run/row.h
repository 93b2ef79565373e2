/* host/run/row.h: one row of a session's data, for who looks at it and does not learn from it. */
#ifndef WEFT_HOST_RUN_ROW_H
#define WEFT_HOST_RUN_ROW_H

#include "run/session.h"

/* A micro-batch of that one row, judged as any micro-batch is. out->ids is the caller's to free; the other arrays
 * lie behind it. */
weft_status weft_session_row(weft_micro_batch *out, const weft_session *session, int32_t split, uint64_t row,
                             weft_error *err);

#endif
