/* host/model/layout.h: units, their groups, and where each parameter lies.
 *
 * A unit comes from the wrap policy; a group is the part of a unit with one storage type and one trainable flag, one
 * contiguous region. A unit has as many groups as it has such pairs; what is trained is stored in one type, so at most
 * one of them is trained. Tensor starts lie on a grid: the largest power of two from 64 to 16 Ki elements that pads the
 * model by less than 2 % (64 where none does; never less than a block of a type that parameters or optimizer states
 * are stored in), chosen from the model's shapes alone. All trainable groups lie one after the other in one flat
 * region, then all frozen ones, so gradient and state regions mirror the trainable one. */
#ifndef WEFT_HOST_MODEL_LAYOUT_H
#define WEFT_HOST_MODEL_LAYOUT_H

#include "model/declare.h"
#include <weft/policy.h>

enum { WEFT_UNIT_GROUPS = 1 + WEFT_DTYPE_LAST }; /* what is trained, and each storage type of what is not */

typedef struct weft_group {
    int32_t unit;
    bool trainable;
    int32_t dtype;    /* weft_dtype that it is stored in */
    int32_t tier;     /* weft_tier: where it lies between its uses */
    int64_t base;     /* bytes from the start of the flat parameter region */
    int64_t numel;    /* padded to the grid */
    int64_t used;     /* elements of parameters, without padding */
    int32_t *members; /* parameter indices, declaration order */
    int32_t n_members;
} weft_group;

typedef struct weft_unit {
    char *name; /* as the policy gave it: a module's path, "first..last" of several; "root" for what is left */
    bool is_root;
    int32_t groups[WEFT_UNIT_GROUPS];
    int32_t n_groups;
    int32_t trained; /* the one of its groups that is trained, which is the first; -1: none is */
} weft_unit;

typedef struct weft_layout {
    int64_t grid; /* elements */
    weft_unit *units;
    int32_t n_units;
    weft_group *groups; /* trainable ones first */
    int32_t n_groups, n_trainable_groups;
    int64_t numel;           /* elements of the flat region, padding included */
    int64_t trainable_numel; /* of its first part */
    int64_t bytes;           /* of the flat region */
} weft_layout;

weft_status weft_layout_create(weft_layout **out, weft_declared *declared, const weft_host *host,
                               const weft_policy_plugin *policy, const void *policy_config, weft_error *err);
void weft_layout_destroy(weft_layout *layout); /* NULL is fine */

/* A unit that is cut further: what it came from, and its own name. */
typedef struct weft_layout_piece {
    int32_t unit;
    const char *name;
} weft_layout_piece;

/* The layout with its units cut into pieces, which are its units then; piece_of: [n_parameters]. The parameters get
 * their new places. */
weft_status weft_layout_split(weft_layout **out, const weft_layout *layout, weft_declared *declared,
                              const weft_layout_piece *pieces, const int32_t *piece_of, weft_error *err);

/* Bytes of n elements of what is fp32 whatever parameters are stored in: masters, gradients and their sums, optimizer
 * states. */
static inline int64_t weft_f32_bytes(int64_t n) {
    return weft_dtype_span(WEFT_F32, n);
}

/* The same of fp64: losses, sums of squares. */
static inline int64_t weft_f64_bytes(int64_t n) {
    return weft_dtype_span(WEFT_F64, n);
}

int64_t weft_group_bytes(const weft_group *group);

/* A unit's trained group; NULL: it has none. */
const weft_group *weft_layout_trained(const weft_layout *layout, int32_t unit);

/* Bytes of the flat region that belong to no parameter. */
int64_t weft_layout_padding(const weft_layout *layout);

/* Bytes from the start of the flat region to a parameter. */
int64_t weft_layout_offset(const weft_layout *layout, const weft_parameter *parameter);

#endif
