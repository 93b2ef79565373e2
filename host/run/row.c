/* host/run/row.c: see row.h. */
#include "run/row.h"

#include "plugin/enter.h"
#include "run/validate_micro_batch.h"

#include <stdlib.h>

weft_status weft_session_row(weft_micro_batch *out, const weft_session *session, int32_t split, uint64_t row,
                             weft_error *err) {
    const size_t places = (size_t)session->data_info.lengths[session->data_info.n_lengths - 1];
    const weft_micro_batch_request request = {
        .struct_size = (uint32_t)sizeof request, .split = split, .rows = 1, .first_row = row};
    const weft_micro_batch_bounds bounds = weft_micro_batch_bounds_of(&session->engine->plan);
    weft_micro_batch micro_batch = {.struct_size = (uint32_t)sizeof micro_batch}, asked;
    weft_status status = WEFT_OK;
    micro_batch.ids = malloc(5 * places * sizeof *micro_batch.ids);
    if (micro_batch.ids == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a row of %zu places", places);
    micro_batch.targets = micro_batch.ids + places;
    micro_batch.starts = micro_batch.ids + 2 * places;
    micro_batch.positions = micro_batch.ids + 3 * places;
    micro_batch.weights = (float *)(void *)(micro_batch.ids + 4 * places);
    memset(micro_batch.ids, WEFT_MICRO_BATCH_POISON, 5 * places * sizeof *micro_batch.ids);
    asked = micro_batch;
    WEFT_PLUGIN_CALL(status, session->data_plugin, micro_batch, err, session->data, &micro_batch, &request);
    if (status == WEFT_OK) status = weft_micro_batch_validate(&micro_batch, &asked, &request, &bounds, err);
    status = weft_plugin_blame(session->data_plugin, status, err);
    if (status == WEFT_OK) *out = micro_batch;
    else free(asked.ids);
    return status;
}
