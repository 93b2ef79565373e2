/* host/tools/init/lengths.c: see lengths.h. */
#include "tools/init/lengths.h"

#include "run/row.h"

#include <stdlib.h>

enum { ROWS = 400 };

/* How often each length occurs: [places + 1]. A document begins where a place is its own start, and padding has no
 * weight. */
static int64_t count_pieces(int64_t *n, const weft_micro_batch *micro_batch) {
    int64_t pieces = 0;
    for (int32_t t = 0; t < micro_batch->length;) {
        int32_t end = t + 1;
        while (end < micro_batch->length && micro_batch->starts[end] == t) end++;
        if (micro_batch->weights[t] > 0.0f || end > t + 1) {
            n[end - t]++;
            pieces++;
        }
        t = end;
    }
    return pieces;
}

weft_status weft_lengths_most(int64_t *out, const weft_session *session, weft_error *err) {
    const uint64_t all = session->all_info.rows, step = all > ROWS ? all / ROWS : 1;
    const int32_t places = session->data_info.lengths[session->data_info.n_lengths - 1];
    int64_t *n = calloc((size_t)places + 1, sizeof *n), pieces = 0, seen = 0;
    weft_status status = WEFT_OK;
    if (n == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the lengths of documents");
    for (uint64_t row = 0; row < all && status == WEFT_OK; row += step) {
        weft_micro_batch micro_batch;
        status = weft_session_row(&micro_batch, session, WEFT_SPLIT_ALL, row, err);
        if (status != WEFT_OK) break;
        pieces += count_pieces(n, &micro_batch);
        free(micro_batch.ids);
    }
    for (*out = 1; *out < places && status == WEFT_OK; ++*out) {
        seen += n[*out];
        if (seen * 100 >= pieces * 95) break;
    }
    free(n);
    return status;
}
