/* host/model/boundary_pages.c: see boundary_pages.h. */
#include "model/boundary_pages.h"

#include <stdlib.h>

static weft_status add_stretch(weft_file_extents *self, int32_t *capacity, const weft_file_extent *next,
                               weft_error *err) {
    if (self->n == *capacity) {
        const int32_t more = *capacity * 2 + 64;
        weft_file_extent *items = realloc(self->items, (size_t)more * sizeof *items);
        if (items == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the writers of a file");
        self->items = items;
        *capacity = more;
    }
    self->items[self->n++] = *next;
    return WEFT_OK;
}

weft_status weft_file_extents_make(weft_file_extents *out, const weft_region_file *file,
                                   const weft_tensor_writer *writer, weft_error *err) {
    const weft_file_extent header = {.tensor = -1, .end = weft_tensor_writer_offset(writer, 0)};
    int32_t capacity = 0;
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    status = add_stretch(out, &capacity, &header, err);
    for (int32_t t = 0; t < file->n && status == WEFT_OK; t++) {
        const int32_t parameter = file->parameters[t];
        const int32_t dtype = parameter < 0 ? 0 : weft_region_file_dtype(file, t);
        const int64_t numel = parameter < 0 ? 0 : file->region->declared->parameters[parameter].numel;
        const int64_t at = weft_tensor_writer_offset(writer, t);
        for (int64_t first = 0, end = 0; first < numel && status == WEFT_OK; first = end) {
            const int32_t keeper = weft_region_written_by(file->region, parameter, first, &end);
            const weft_file_extent next = {
                t, keeper, first, end - first, at + weft_dtype_span(dtype, first), at + weft_dtype_span(dtype, end)};
            status = add_stretch(out, &capacity, &next, err);
        }
    }
    return status;
}

/* Returns the lowest rank that stores bytes of a page, which extent i overlaps. */
static int32_t find_page_writer(const weft_file_extents *self, int32_t i, int64_t page) {
    int32_t lowest = self->items[i].keeper;
    for (int32_t k = i - 1; k >= 0 && self->items[k].end > page * WEFT_PAGE; k--)
        if (self->items[k].keeper < lowest) lowest = self->items[k].keeper;
    for (int32_t k = i + 1; k < self->n && self->items[k].begin < (page + 1) * WEFT_PAGE; k++)
        if (self->items[k].keeper < lowest) lowest = self->items[k].keeper;
    return lowest;
}

static int64_t clamp_to(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

int weft_file_extent_split(weft_part out[WEFT_FILE_EXTENT_PARTS], const weft_file_extents *self, int32_t i,
                           int64_t begin, int64_t end) {
    const weft_file_extent *s = &self->items[i];
    const int64_t up = (s->begin + WEFT_PAGE - 1) / WEFT_PAGE * WEFT_PAGE;
    const int64_t down = i + 1 == self->n ? s->end : s->end / WEFT_PAGE * WEFT_PAGE;
    /* Three parts: the extent's bytes on its first page, on complete pages, and on its last page. */
    const int64_t solid = clamp_to(up, s->begin, s->end), tail = clamp_to(down, solid, s->end);
    const int64_t cuts[WEFT_FILE_EXTENT_PARTS + 1] = {s->begin, solid, tail, s->end};
    int n = 0;
    for (int k = 0; k < WEFT_FILE_EXTENT_PARTS; k++) {
        const weft_part part = {clamp_to(cuts[k], begin, end), clamp_to(cuts[k + 1], begin, end), s->keeper};
        if (part.begin == part.end) continue;
        out[n] = part;
        if (k != 1) out[n].writer = find_page_writer(self, i, part.begin / WEFT_PAGE);
        n++;
    }
    return n;
}

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
