/* host/plan/norm_nodes.h: which sums of squares go round when the norm of the whole gradient is made, and where they
 * lie.
 *
 * A group of gradients that is cut has one fp64 node per grid cell; groups follow one another. Behind them lie, for
 * gradients with owners, [world][most that one owns] sums of whole tensors. The executor, the pricer and the count of
 * bytes all walk the groups by the functions here. */
#ifndef WEFT_HOST_PLAN_NORM_NODES_H
#define WEFT_HOST_PLAN_NORM_NODES_H

#include "plan/plan.h"

/* One cut group's part. To begin a walk: {.group = -1}. */
typedef struct weft_norm_group {
    int32_t group;
    weft_cut cut;
    int64_t cells; /* nodes of one rank's piece; all ranks' pieces follow one another */
    int64_t first; /* of the group's nodes, counted from the first group's */
    int64_t after; /* the next group's first */
} weft_norm_group;

/* The next cut group of the training job; false: there is none, and walk->after is where the owned rows begin. */
bool weft_norm_group_next(const weft_plan *plan, weft_norm_group *walk);

/* True if the nodes of a parameter's cells go round. */
bool weft_norm_is_cut(const weft_plan *plan, const weft_parameter *parameter);

/* The rank that has all of a group's gradient where no other one does; -1: it is not so. */
int32_t weft_norm_owner(const weft_plan *plan, int32_t group);
/* Most tensors whose gradients one rank owns; 0: nothing is owned. */
int64_t weft_norm_most_owned(const weft_plan *plan);

/* fp64 numbers in all; 0 where no gradient is cut or owned. */
int64_t weft_norm_nodes(const weft_plan *plan);

/* Grid cells of n elements. */
int64_t weft_norm_cells(const weft_plan *plan, int64_t n);

/* Scratch of the kernels of NORM; asked before anything is placed: room for all tensors whole, and for their nodes. */
int64_t weft_norm_work(const weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device);

#endif
