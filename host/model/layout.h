/* host/model/layout.h: units, their groups, and the offset of each parameter.
 *
 * The wrap policy defines the units. A group contains a unit's parameters with one storage type and one trainable flag,
 * as one contiguous region. All trained parameters have one storage type, so a unit has at most one trained group.
 *
 * Tensor starts are aligned to a grid: the largest power of two from 64 to 16 Ki elements that pads the model by less
 * than 2 %, but at least the longest block of the storage types in use. It depends only on the model's shapes.
 * Trainable groups precede frozen ones in one flat region, so gradients and states mirror the trainable part. */
#ifndef WEFT_HOST_MODEL_LAYOUT_H
#define WEFT_HOST_MODEL_LAYOUT_H

#include "model/declare.h"
#include <weft/policy.h>

enum { WEFT_UNIT_GROUPS = 1 + WEFT_DTYPE_LAST }; /* the trained group, and one frozen group per storage type */

typedef struct weft_group {
    int32_t unit;
    bool trainable;
    int32_t dtype;    /* weft_dtype that it is stored in */
    int64_t base;     /* bytes from the start of the flat parameter region */
    int64_t numel;    /* padded to the grid */
    int64_t used;     /* elements of parameters without padding */
    int32_t *members; /* parameter indices, declaration order */
    int32_t n_members;
} weft_group;

typedef struct weft_unit {
    char *name; /* from the policy: a module's path, "first..last" for several; "root" for the rest */
    bool is_root;
    int32_t groups[WEFT_UNIT_GROUPS];
    int32_t n_groups;
    int32_t trained; /* its trained group, which is the first; -1: frozen unit */
} weft_unit;

typedef struct weft_layout {
    int64_t grid; /* elements */
    weft_unit *units;
    int32_t n_units;
    weft_group *groups; /* trainable ones first */
    int32_t n_groups, n_trainable_groups;
    int64_t numel;           /* elements of the flat region, padding included */
    int64_t trainable_numel; /* of the trainable groups */
    int64_t bytes;           /* of the flat region */
} weft_layout;

weft_status weft_layout_create(weft_layout **out, weft_declared *declared, const weft_host *host,
                               const weft_policy_plugin *policy, const void *policy_config, weft_error *err);
void weft_layout_destroy(weft_layout *layout); /* NULL is allowed */

/* A unit of a new layout, or a part of a unit that is divided. */
typedef struct weft_layout_piece {
    const char *name;
    bool is_root;
} weft_layout_piece;

/* Creates a layout with a unit for each piece that has parameters, in their order; piece_of: [n_parameters]. Sets the
 * offsets of the parameters. */
weft_layout *weft_layout_make(weft_declared *declared, const weft_layout_piece *pieces, int32_t n_pieces,
                              const int32_t *piece_of);

/* Returns the bytes of n fp32 elements: masters, gradients and their sums, optimizer states. */
static inline int64_t weft_f32_bytes(int64_t n) {
    return weft_dtype_span(WEFT_F32, n);
}

/* Returns the bytes of n fp64 elements: losses, sums of squares. */
static inline int64_t weft_f64_bytes(int64_t n) {
    return weft_dtype_span(WEFT_F64, n);
}

/* Returns a unit's trained group, or NULL. */
const weft_group *weft_layout_trained(const weft_layout *layout, int32_t unit);

/* ---- the shards of the flat region that one rank stores ----
 *
 * Every group is divided into one shard per replica, each a multiple of the grid and of equal size on all ranks; the
 * last shards may be empty. A rank stores some consecutive shards, or no shard. Its shards of all groups are stored
 * consecutively in a region of its own, padded to complete shards, so that collectives work in place. With one shard
 * per group this is the layout itself. */

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
