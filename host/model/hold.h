/* host/model/hold.h: which part of the flat region one rank keeps, and where.
 *
 * Every group is cut into as many pieces as there are replicas, each a whole number of grid cells, the same for all
 * ranks; the last ones may be empty. A rank keeps some pieces that follow one another, or none. What it keeps of all
 * groups lies one after the other in a region of its own, with room for whole pieces, so that pieces can be exchanged
 * in place. With one piece per group this is the layout itself. */
#ifndef WEFT_HOST_MODEL_HOLD_H
#define WEFT_HOST_MODEL_HOLD_H

#include "model/layout.h"

/* Of one group: elements [first, first + n) of it lie `at` bytes from the start of the rank's region. */
typedef struct weft_span {
    int64_t first, n, at;
    int64_t room;  /* bytes: n and the padding up to whole pieces */
    int32_t dtype; /* weft_dtype of the elements */
} weft_span;

typedef struct weft_hold {
    weft_span *spans; /* [n_groups] */
    int32_t n_groups;
    int64_t bytes; /* of the rank's region */
} weft_hold;

/* What a rank keeps of one group. */
typedef struct weft_hold_part {
    int32_t pieces;   /* that the group is cut into */
    int32_t first, n; /* that the rank keeps; n 0: nothing */
} weft_hold_part;

/* Elements of one piece of a group that is cut into `pieces`. */
int64_t weft_hold_piece(const weft_layout *layout, const weft_group *group, int32_t pieces);

/* parts: of the first n_groups groups of the layout. dtype: of what is kept for each of their elements; 0: what the
 * group is stored in. */
weft_status weft_hold_create(weft_hold **out, const weft_layout *layout, const weft_hold_part *parts, int32_t n_groups,
                             int32_t dtype, weft_error *err);
void weft_hold_destroy(weft_hold *hold); /* NULL is fine */

/* The part of [first, first + n) of a parameter that is kept: *begin and *end count from the parameter's first element,
 * *at is bytes from the start of the region to element *begin. False: nothing is. */
bool weft_hold_find(const weft_hold *hold, const weft_parameter *parameter, int64_t first, int64_t n, int64_t *begin,
                    int64_t *end, int64_t *at);

/* Bytes from the start of the region to an element of a group, which is kept. */
static inline int64_t weft_span_at(const weft_span *span, int64_t element) {
    return span->at + weft_dtype_span(span->dtype, element - span->first);
}

#endif
