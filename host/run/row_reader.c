/* host/run/row_reader.c: see row_reader.h. */
#include "run/row_reader.h"

#include "plugin/enter.h"

#include <stdlib.h>

weft_status weft_row_reader_open(weft_row_reader *out, const weft_session *session, weft_error *err) {
    const weft_data_info *info = &session->data_info;
    const size_t n = (size_t)info->lengths[info->n_lengths - 1];
    weft_micro_batch *micro_batch = &out->micro_batch;
    memset(out, 0, sizeof *out);
    out->session = session;
    micro_batch->struct_size = (uint32_t)sizeof *micro_batch;
    micro_batch->ids = calloc(n, sizeof *micro_batch->ids);
    micro_batch->targets = calloc(n, sizeof *micro_batch->targets);
    micro_batch->weights = calloc(n, sizeof *micro_batch->weights);
    micro_batch->starts = calloc(n, sizeof *micro_batch->starts);
    micro_batch->positions = calloc(n, sizeof *micro_batch->positions);
    if (micro_batch->ids != NULL && micro_batch->targets != NULL && micro_batch->weights != NULL &&
        micro_batch->starts != NULL && micro_batch->positions != NULL)
        return WEFT_OK;
    weft_row_reader_close(out);
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for a row");
}

void weft_row_reader_close(weft_row_reader *reader) {
    free(reader->micro_batch.ids);
    free(reader->micro_batch.targets);
    free(reader->micro_batch.weights);
    free(reader->micro_batch.starts);
    free(reader->micro_batch.positions);
    memset(reader, 0, sizeof *reader);
}

weft_status weft_row_read(weft_row_reader *reader, int32_t split, uint64_t row, weft_error *err) {
    const weft_session *session = reader->session;
    const weft_micro_batch_request request = {(uint32_t)sizeof request, 0, split, 1, row};
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, session->data_plugin, micro_batch, err, session->data, &reader->micro_batch, &request);
    return status;
}

int32_t weft_row_document_end(const weft_row_reader *reader, int32_t at) {
    const weft_micro_batch *micro_batch = &reader->micro_batch;
    int32_t end = at + 1, last = at;
    while (end < micro_batch->length && micro_batch->starts[end] == at) end++;
    while (last < end && micro_batch->ids[last] == 0 && micro_batch->weights[last] <= 0.0f) last++;
    return last == end && end == at + 1 ? at : end;
}
