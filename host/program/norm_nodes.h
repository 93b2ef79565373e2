/* host/program/norm_nodes.h: the exchanges of NORM, which computes the norm of the complete gradient, and their layout.
 *
 * A sharded group of gradients has one fp64 node per grid cell; the groups are contiguous. They are followed by
 * [world][most tensors of one owner] sums of tensors for gradients with owners. The losses of the micro-batches are
 * exchanged as well. Execution, tables, prices and byte counts all iterate by weft_norm_exchange_next. */
#ifndef WEFT_HOST_PROGRAM_NORM_NODES_H
#define WEFT_HOST_PROGRAM_NORM_NODES_H

#include "program/plan.h"

enum { WEFT_NORM_GOES_LOSSES = 1, WEFT_NORM_GOES_CELLS = 2, WEFT_NORM_GOES_OWNED = 3 };

/* An all-gather of fp64 numbers. Zeroed: before the first one. */
typedef struct weft_norm_exchange {
    int32_t goes;  /* WEFT_NORM_GOES_...; 0: before the first one */
    int32_t group; /* of CELLS: the group */
    weft_cut cut;  /* the process group, in the order of chunks */
    int64_t n;     /* numbers that a rank sends to each other one */
    int64_t first; /* index of the first node; losses have another buffer */
} weft_norm_exchange;

/* Advances to the next exchange of NORM: losses, then each sharded group, then gradients with owners. False: the
 * end. */
bool weft_norm_exchange_next(const weft_plan *plan, weft_norm_exchange *walk);
/* Returns the exchange of gradients with owners; n 0: there are none, and there is no exchange. */
weft_norm_exchange weft_norm_owned(const weft_plan *plan);

/* True if the nodes of the parameter's cells are exchanged. */
bool weft_norm_is_cut(const weft_plan *plan, const weft_parameter *parameter);

/* Returns the only rank with the gradient of a group; -1: no owner. */
int32_t weft_norm_owner(const weft_plan *plan, int32_t group);

/* Returns the number of gradient elements whose squares a rank sums. */
int64_t weft_norm_elements(const weft_plan *plan, int32_t rank);

/* Returns the number of nodes; 0: no gradient is sharded or owned. */
int64_t weft_norm_nodes(const weft_plan *plan);

/* Returns the grid cells of n elements. */
int64_t weft_norm_cells(const weft_plan *plan, int64_t n);

/* Returns the scratch bytes of the kernels of NORM for any placement: all complete tensors, or all their nodes. */
int64_t weft_norm_work(const weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device);

#endif
