/* host/model/layout.h: units, their groups, and where each parameter lies.
 *
 * A unit comes from the wrap policy; a group is the part of a unit with one storage dtype and one trainable flag, one
 * contiguous region. Tensor starts lie on a grid: the largest power of two from 64 to 16 Ki elements that pads the
 * model by less than 2 % (64 where none does), chosen from the model's shapes alone. All trainable groups lie one after
 * the other in one flat region, then all frozen ones, so gradient and state regions mirror the trainable one. */
#ifndef WEFT_HOST_MODEL_LAYOUT_H
#define WEFT_HOST_MODEL_LAYOUT_H

#include "model/declare.h"
#include <weft/policy.h>

typedef struct weft_group {
    int32_t unit;
    bool trainable;
    int32_t dtype;    /* weft_dtype of the master */
    int64_t base;     /* elements from the start of the flat parameter region */
    int64_t numel;    /* padded to the grid */
    int64_t used;     /* elements of parameters, without padding */
    int32_t *members; /* parameter indices, declaration order */
    int32_t n_members;
} weft_group;

typedef struct weft_unit {
    char *name; /* as the policy gave it: a module's path, "first..last" of several; "root" for what is left */
    bool is_root;
    int32_t groups[2]; /* trainable, frozen; -1: none */
} weft_unit;

typedef struct weft_layout {
    int64_t grid; /* elements */
    weft_unit *units;
    int32_t n_units;
    weft_group *groups; /* trainable ones first */
    int32_t n_groups, n_trainable_groups;
    int64_t numel;           /* of the flat region, padding included */
    int64_t trainable_numel; /* of its first part */
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

/* Elements from the start of the flat region to a parameter. */
int64_t weft_layout_offset(const weft_layout *layout, const weft_parameter *parameter);

#endif
