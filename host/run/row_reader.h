/* host/run/row_reader.h: rows of a split one by one, outside of training. */
#ifndef WEFT_HOST_RUN_ROW_READER_H
#define WEFT_HOST_RUN_ROW_READER_H

#include "run/session.h"

typedef struct weft_row_reader {
    const weft_session *session;
    weft_micro_batch micro_batch; /* of one row */
} weft_row_reader;

weft_status weft_row_reader_open(weft_row_reader *out, const weft_session *session, weft_error *err);
void weft_row_reader_close(weft_row_reader *reader);

/* Row `row` of the split's stream, in reader->micro_batch. */
weft_status weft_row_read(weft_row_reader *reader, int32_t split, uint64_t row, weft_error *err);

/* Where the document that begins at place `at` of the row ends; `at` itself: there is padding from here on. The place
 * behind its last input is its last target's. */
int32_t weft_row_document_end(const weft_row_reader *reader, int32_t at);

#endif
