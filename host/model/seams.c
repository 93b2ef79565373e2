/* host/model/seams.c: see seams.h. */
#include "model/seams.h"

#include <stdlib.h>

weft_status weft_seams_open(weft_seams *self, const weft_peers *peers, weft_error *err) {
    const size_t bytes = (size_t)WEFT_SEAMS * WEFT_PAGE, world = (size_t)peers->world;
    memset(self, 0, sizeof *self);
    self->peers = peers;
    self->items = calloc(WEFT_SEAMS, sizeof *self->items);
    self->kept = malloc(bytes);
    self->goes = malloc(bytes);
    self->comes = malloc(bytes);
    self->in = calloc(world, sizeof *self->in);
    self->out = calloc(world, sizeof *self->out);
    if (self->items != NULL && self->kept != NULL && self->goes != NULL && self->comes != NULL && self->in != NULL &&
        self->out != NULL)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the pages that ranks share");
}

void weft_seams_close(weft_seams *self) {
    free(self->out);
    free(self->in);
    free(self->comes);
    free(self->goes);
    free(self->kept);
    free(self->items);
}

void weft_seams_note(weft_seams *self, const weft_part *part, int32_t from, const void *bytes) {
    const weft_seam seam = {from, part->writer, part->begin, (int32_t)(part->end - part->begin)};
    const int32_t rank = self->peers->rank;
    self->noted++;
    if (seam.from != rank && seam.to != rank) return;
    if (bytes != NULL) memcpy(self->kept + (size_t)self->n * WEFT_PAGE, bytes, (size_t)seam.bytes);
    self->items[self->n++] = seam;
}

/* Sets both sides of an exchange; each rank's parts are consecutive. */
static void place_parcels(weft_seams *self) {
    const int32_t rank = self->peers->rank;
    char *goes = self->goes, *comes = self->comes;
    for (int32_t r = 0; r < self->peers->world; r++) {
        const weft_parcel out = {goes, 0}, in = {comes, 0};
        self->out[r] = out;
        self->in[r] = in;
        for (int32_t i = 0; i < self->n; i++) {
            const weft_seam *seam = &self->items[i];
            if (seam->from == rank && seam->to == r) {
                memcpy(goes, self->kept + (size_t)i * WEFT_PAGE, (size_t)seam->bytes);
                goes += seam->bytes;
                self->out[r].n += seam->bytes;
            } else if (seam->to == rank && seam->from == r) {
                comes += seam->bytes;
                self->in[r].n += seam->bytes;
            }
        }
    }
}

weft_status weft_seams_exchange(weft_seams *self, weft_seams_put *put, void *context, weft_error *err) {
    const int32_t rank = self->peers->rank;
    weft_status status = WEFT_OK;
    const char *comes = self->comes;
    if (self->noted == 0) return WEFT_OK;
    place_parcels(self);
    status = self->peers->swap(self->peers->context, self->in, self->out, err);
    for (int32_t r = 0; r < self->peers->world && status == WEFT_OK; r++)
        for (int32_t i = 0; i < self->n; i++) {
            if (self->items[i].to != rank || self->items[i].from != r) continue;
            put(context, self->items[i].at, comes, self->items[i].bytes);
            comes += self->items[i].bytes;
        }
    self->n = self->noted = 0;
    return status;
}
