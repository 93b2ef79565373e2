/* host/model/boundary_pages.c: see boundary_pages.h. */
#include "model/boundary_pages.h"

#include "base/alloc.h"

#include <stdlib.h>

static void add_extent(weft_file_extents *self, weft_file_extent next) {
    self->items = weft_grow(self->items, self->n);
    self->items[self->n++] = next;
}

weft_file_extents weft_file_extents_make(const weft_region_file *file, const weft_tensor_writer *writer) {
    weft_file_extents out = {0};
    add_extent(&out, (weft_file_extent){.tensor = -1, .end = weft_tensor_writer_offset(writer, 0)});
    for (int32_t t = 0; t < file->n; t++) {
        const int32_t parameter = file->parameters[t];
        const int32_t dtype = parameter < 0 ? 0 : weft_region_file_dtype(file, t);
        const int64_t numel = parameter < 0 ? 0 : file->region->declared->parameters[parameter].numel;
        const int64_t at = weft_tensor_writer_offset(writer, t);
        for (int64_t first = 0, end = 0; first < numel; first = end) {
            const int32_t keeper = weft_region_written_by(file->region, parameter, first, &end);
            add_extent(&out, (weft_file_extent){t, keeper, first, end - first, at + weft_dtype_span(dtype, first),
                                                at + weft_dtype_span(dtype, end)});
        }
    }
    return out;
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
