/* host/run/row_reader.c: see row_reader.h. */
#include "run/row_reader.h"

#include "plugin/enter.h"

#include <stdlib.h>

weft_status weft_row_reader_open(weft_row_reader *out, const weft_session *session, weft_error *err) {
    const weft_data_info *info = &session->data_info;
    const size_t n = (size_t)info->lengths[info->n_lengths - 1];
    weft_leaf *leaf = &out->leaf;
    memset(out, 0, sizeof *out);
    out->session = session;
    leaf->struct_size = (uint32_t)sizeof *leaf;
    leaf->ids = calloc(n, sizeof *leaf->ids);
    leaf->targets = calloc(n, sizeof *leaf->targets);
    leaf->weights = calloc(n, sizeof *leaf->weights);
    leaf->starts = calloc(n, sizeof *leaf->starts);
    leaf->positions = calloc(n, sizeof *leaf->positions);
    if (leaf->ids != NULL && leaf->targets != NULL && leaf->weights != NULL && leaf->starts != NULL &&
        leaf->positions != NULL)
        return WEFT_OK;
    weft_row_reader_close(out);
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for a row");
}

void weft_row_reader_close(weft_row_reader *reader) {
    free(reader->leaf.ids);
    free(reader->leaf.targets);
    free(reader->leaf.weights);
    free(reader->leaf.starts);
    free(reader->leaf.positions);
    memset(reader, 0, sizeof *reader);
}

weft_status weft_row_read(weft_row_reader *reader, int32_t split, uint64_t row, weft_error *err) {
    const weft_session *session = reader->session;
    const weft_leaf_request request = {(uint32_t)sizeof request, 0, split, 1, row};
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, session->data_plugin, leaf, err, session->data, &reader->leaf, &request);
    return status;
}

int32_t weft_row_document_end(const weft_row_reader *reader, int32_t at) {
    const weft_leaf *leaf = &reader->leaf;
    int32_t end = at + 1, last = at;
    while (end < leaf->length && leaf->starts[end] == at) end++;
    while (last < end && leaf->ids[last] == 0 && leaf->weights[last] <= 0.0f) last++;
    return last == end && end == at + 1 ? at : end;
}
