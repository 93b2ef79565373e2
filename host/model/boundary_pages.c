/* host/model/boundary_pages.c: see boundary_pages.h. */
#include "model/boundary_pages.h"

#include <stdlib.h>

weft_status weft_boundary_pages_open(weft_boundary_pages *self, const weft_process_group *peers, weft_error *err) {
    const size_t bytes = (size_t)WEFT_BOUNDARY_PAGES * WEFT_PAGE, world = (size_t)peers->world;
    memset(self, 0, sizeof *self);
    self->peers = peers;
    self->items = calloc(WEFT_BOUNDARY_PAGES, sizeof *self->items);
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

void weft_boundary_pages_close(weft_boundary_pages *self) {
    free(self->out);
    free(self->in);
    free(self->comes);
    free(self->goes);
    free(self->kept);
    free(self->items);
}

void weft_boundary_pages_note(weft_boundary_pages *self, const weft_part *part, int32_t from, const void *bytes) {
    const weft_boundary_page boundary_page = {from, part->writer, part->begin, (int32_t)(part->end - part->begin)};
    const int32_t rank = self->peers->rank;
    self->noted++;
    if (boundary_page.from != rank && boundary_page.to != rank) return;
    if (bytes != NULL) memcpy(self->kept + (size_t)self->n * WEFT_PAGE, bytes, (size_t)boundary_page.bytes);
    self->items[self->n++] = boundary_page;
}

/* Sets both sides of an exchange; each rank's parts are consecutive. */
static void place_parcels(weft_boundary_pages *self) {
    const int32_t rank = self->peers->rank;
    char *goes = self->goes, *comes = self->comes;
    for (int32_t r = 0; r < self->peers->world; r++) {
        const weft_message_buffer out = {goes, 0}, in = {comes, 0};
        self->out[r] = out;
        self->in[r] = in;
        for (int32_t i = 0; i < self->n; i++) {
            const weft_boundary_page *boundary_page = &self->items[i];
            if (boundary_page->from == rank && boundary_page->to == r) {
                memcpy(goes, self->kept + (size_t)i * WEFT_PAGE, (size_t)boundary_page->bytes);
                goes += boundary_page->bytes;
                self->out[r].n += boundary_page->bytes;
            } else if (boundary_page->to == rank && boundary_page->from == r) {
                comes += boundary_page->bytes;
                self->in[r].n += boundary_page->bytes;
            }
        }
    }
}

weft_status weft_boundary_pages_exchange(weft_boundary_pages *self, weft_boundary_pages_put *put, void *context,
                                         weft_error *err) {
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
