/* host/model/process_group.c: see process_group.h. */
#include "model/process_group.h"

#include "base/alloc.h"
#include "base/units.h"

#include <stdlib.h>

weft_status weft_process_group_agree(const weft_process_group *self, weft_status status, weft_error *err) {
    weft_error own = WEFT_ERROR_INIT, comm = WEFT_ERROR_INIT;
    weft_status failed = WEFT_OK;
    int32_t rank = -1; /* the failed rank that all ranks report */
    if (weft_process_group_is_single(self)) return status;
    if (err == NULL) err = &own;
    failed = self->gather(self->context, self->codes, (int32_t)status, &comm);
    for (int32_t r = self->world - 1; r >= 0 && failed == WEFT_OK; r--)
        if (self->codes[r] != WEFT_OK &&
            (self->codes[r] != WEFT_E_STOPPED || rank < 0 || self->codes[rank] == WEFT_E_STOPPED))
            rank = r;
    if (failed == WEFT_OK && rank < 0) return WEFT_OK;
    if (failed == WEFT_OK && status == WEFT_OK) err->text[0] = '\0';
    if (failed == WEFT_OK) failed = self->share(self->context, err->text, (int64_t)sizeof err->text, rank, &comm);
    if (failed != WEFT_OK) { /* report this rank's own error first */
        if (status == WEFT_OK) *err = comm;
        return status == WEFT_OK ? failed : status;
    }
    status = (weft_status)self->codes[rank];
    err->code = (int32_t)(self->rank == 0 ? status : WEFT_E_PEER);
    if (self->rank != 0) err->text[0] = '\0';
    else if (rank != 0) (void)weft_error_prefix(err, "rank %d: ", (int)rank);
    return status;
}

int64_t weft_process_group_scratch(int32_t world) {
    enum { LEAST = 1 << 18, LINE = 64 };
    const int64_t numbers = LINE + weft_cache_lines((int64_t)sizeof(int32_t) * world); /* for gather: own number and the
                                                                                          numbers of all ranks */
    if (world == 1) return 0;
    return numbers > LEAST ? numbers : LEAST;
}

weft_status weft_process_group_broadcast(const weft_process_group *self, void *bytes, int64_t n, weft_error *err) {
    return weft_process_group_is_single(self) ? WEFT_OK : self->share(self->context, bytes, n, 0, err);
}

weft_status weft_process_group_all_true(const weft_process_group *self, bool *out, bool mine, weft_error *err) {
    weft_status status = WEFT_OK;
    *out = mine;
    if (weft_process_group_is_single(self)) return WEFT_OK;
    status = self->gather(self->context, self->codes, mine, err);
    for (int32_t rank = 0; rank < self->world && status == WEFT_OK; rank++) *out = *out && self->codes[rank] != 0;
    return status;
}

weft_status weft_process_group_gather(const weft_process_group *peers, void *rows, int64_t bytes, weft_error *err) {
    const size_t world = (size_t)peers->world;
    char *base = rows;
    weft_message_buffer *in = weft_alloc(2 * world, sizeof *in), *out = in + world;
    weft_status status = WEFT_OK;
    for (size_t rank = 1; peers->rank == 0 && rank < world; rank++)
        in[rank] = (weft_message_buffer){base + (int64_t)rank * bytes, bytes};
    if (peers->rank > 0) out[0] = (weft_message_buffer){base + peers->rank * bytes, bytes};
    status = peers->swap(peers->context, in, out, err);
    free(in);
    return status;
}
