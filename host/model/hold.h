/* host/model/hold.h: the shards of the flat region that one rank stores, and their offsets.
 *
 * Every group is divided into one shard per replica, each a multiple of the grid and of equal size on all ranks; the
 * last shards may be empty. A rank stores some consecutive shards, or no shard. Its shards of all groups are stored
 * consecutively in a region of its own, padded to complete shards, so that collectives work in place. With one shard
 * per group this is the layout itself. */
#ifndef WEFT_HOST_MODEL_HOLD_H
#define WEFT_HOST_MODEL_HOLD_H

#include "model/layout.h"

/* Elements [first, first + n) of one group, stored at byte `at` of the rank's region. */
typedef struct weft_span {
    int64_t first, n, at;
    int64_t room;  /* bytes of the complete shards: n and padding */
    int32_t dtype; /* weft_dtype of the elements */
} weft_span;

typedef struct weft_hold {
    weft_span *spans; /* [n_groups] */
    int32_t n_groups;
    int64_t bytes; /* size of the rank's region */
} weft_hold;

/* The shards of one group that a rank stores. */
typedef struct weft_hold_part {
    int32_t pieces;   /* number of shards of the group */
    int32_t first, n; /* shards on this rank; n 0: no shard */
} weft_hold_part;

/* Returns the elements per shard of a group that is divided into `pieces` shards. */
int64_t weft_hold_piece(const weft_layout *layout, const weft_group *group, int32_t pieces);

/* parts: for the first n_groups groups of the layout. dtype: type of each stored element; 0: the group's storage
 * type. */
weft_hold *weft_hold_create(const weft_layout *layout, const weft_hold_part *parts, int32_t n_groups, int32_t dtype);
void weft_hold_destroy(weft_hold *hold); /* NULL is allowed */

/* Finds the stored part of [first, first + n) of a parameter. *begin and *end count from the parameter's first element;
 * *at is the byte offset of element *begin in the region. Returns false if no part is stored. */
bool weft_hold_find(const weft_hold *hold, const weft_parameter *parameter, int64_t first, int64_t n, int64_t *begin,
                    int64_t *end, int64_t *at);

/* Returns the byte offset in the region of a stored element of a group. */
static inline int64_t weft_span_at(const weft_span *span, int64_t element) {
    return span->at + weft_dtype_span(span->dtype, element - span->first);
}

#endif
