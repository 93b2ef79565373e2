/* host/run/row.c: see row.h. */
#include "run/row.h"

#include "plugin/enter.h"
#include "run/judge_leaf.h"

#include <stdlib.h>

weft_status weft_session_row(weft_leaf *out, const weft_session *session, int32_t split, uint64_t row,
                             weft_error *err) {
    const size_t places = (size_t)session->data_info.lengths[session->data_info.n_lengths - 1];
    const weft_leaf_request request = {
        .struct_size = (uint32_t)sizeof request, .split = split, .rows = 1, .first_row = row};
    const weft_leaf_bounds bounds = weft_leaf_bounds_of(&session->engine->plan);
    weft_leaf leaf = {.struct_size = (uint32_t)sizeof leaf}, asked;
    weft_status status = WEFT_OK;
    leaf.ids = malloc(5 * places * sizeof *leaf.ids);
    if (leaf.ids == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a row of %zu places", places);
    leaf.targets = leaf.ids + places;
    leaf.starts = leaf.ids + 2 * places;
    leaf.positions = leaf.ids + 3 * places;
    leaf.weights = (float *)(void *)(leaf.ids + 4 * places);
    memset(leaf.ids, WEFT_LEAF_POISON, 5 * places * sizeof *leaf.ids);
    asked = leaf;
    WEFT_PLUGIN_CALL(status, session->data_plugin, leaf, err, session->data, &leaf, &request);
    if (status == WEFT_OK) status = weft_leaf_judge(&leaf, &asked, &request, &bounds, err);
    status = weft_plugin_blame(session->data_plugin, status, err);
    if (status == WEFT_OK) *out = leaf;
    else free(asked.ids);
    return status;
}
