/* host/model/hold.c: see hold.h. */
#include "model/hold.h"

#include "base/alloc.h"
#include "base/units.h"

#include <stdlib.h>

int64_t weft_hold_piece(const weft_layout *layout, const weft_group *group, int32_t pieces) {
    const int64_t cells = group->numel / layout->grid;
    return (cells + pieces - 1) / pieces * layout->grid;
}

weft_hold *weft_hold_create(const weft_layout *layout, const weft_hold_part *parts, int32_t n_groups, int32_t dtype) {
    weft_hold *self = weft_alloc(1, sizeof *self);
    self->spans = weft_alloc(n_groups, sizeof *self->spans);
    self->n_groups = n_groups;
    for (int32_t g = 0; g < n_groups; g++) {
        const int64_t numel = layout->groups[g].numel;
        const int64_t piece = weft_hold_piece(layout, &layout->groups[g], parts[g].pieces);
        weft_span *span = &self->spans[g];
        span->first = weft_smaller(numel, piece * parts[g].first);
        span->n = weft_smaller(numel, piece * (parts[g].first + parts[g].n)) - span->first;
        span->dtype = dtype == 0 ? layout->groups[g].dtype : dtype;
        span->at = self->bytes;
        span->room = weft_dtype_span(span->dtype, piece * parts[g].n);
        self->bytes += weft_cache_lines(span->room);
    }
    return self;
}

void weft_hold_destroy(weft_hold *hold) {
    if (hold == NULL) return;
    free(hold->spans);
    free(hold);
}

bool weft_hold_find(const weft_hold *hold, const weft_parameter *parameter, int64_t first, int64_t n, int64_t *begin,
                    int64_t *end, int64_t *at) {
    const weft_span *span = parameter->group < hold->n_groups ? &hold->spans[parameter->group] : NULL;
    if (span == NULL) return false;
    *begin = weft_larger(first, span->first - parameter->offset);
    *end = weft_smaller(first + n, span->first + span->n - parameter->offset);
    *at = weft_span_at(span, parameter->offset + *begin);
    return *begin < *end;
}
