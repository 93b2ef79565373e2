/* host/report/data_table.h: prints sequences of the data: their text with the trained parts marked, and their counts.
 */
#ifndef WEFT_HOST_REPORT_DATA_TABLE_H
#define WEFT_HOST_REPORT_DATA_TABLE_H

#include "run/session.h"

/* Prints n sequences from `first` on; tokens: a line for each token. */
weft_status weft_data_show(const weft_session *session, int32_t split, uint64_t first, uint64_t n, bool tokens,
                           weft_error *err);
weft_status weft_data_stats(const weft_session *session, weft_error *err);

#endif
