/* host/program/norm_nodes.h: which numbers go round when the norm of the whole gradient is made, and where they lie.
 *
 * A group of gradients that is cut has one fp64 node per grid cell; groups follow one another. Behind them lie, for
 * gradients with owners, [world][most that one owns] sums of whole tensors. The losses of the micro-batches go round
 * with them. The executor, its tables, the pricer and the count of bytes all walk them by weft_norm_exchange_next. */
#ifndef WEFT_HOST_PROGRAM_NORM_NODES_H
#define WEFT_HOST_PROGRAM_NORM_NODES_H

#include "program/plan.h"

enum { WEFT_NORM_GOES_LOSSES = 1, WEFT_NORM_GOES_CELLS = 2, WEFT_NORM_GOES_OWNED = 3 };

/* An all-gather of fp64 numbers. To begin a walk: zeroed. */
typedef struct weft_norm_exchange {
    int32_t goes;  /* WEFT_NORM_GOES_...; 0: the walk has not begun */
    int32_t group; /* of CELLS: whose */
    weft_cut cut;  /* among all of its ranks, by their places */
    int64_t n;     /* numbers that a rank gives to each other one; those of all follow one another */
    int64_t first; /* of the nodes, counted from the first group's: where they lie. Losses lie elsewhere. */
} weft_norm_exchange;

/* The next exchange of the training job's NORM: the losses, then each cut group, then what has owners. False: there is
 * none. */
bool weft_norm_exchange_next(const weft_plan *plan, weft_norm_exchange *walk);
/* The last one, of what has owners, and where its rows begin; n 0: nothing has one, and it does not go round. */
weft_norm_exchange weft_norm_owned(const weft_plan *plan);

/* True if the nodes of a parameter's cells go round. */
bool weft_norm_is_cut(const weft_plan *plan, const weft_parameter *parameter);

/* The rank that has all of a group's gradient where no other one does; -1: it is not so. */
int32_t weft_norm_owner(const weft_plan *plan, int32_t group);

/* Elements of gradients whose squares a rank adds up. */
int64_t weft_norm_elements(const weft_plan *plan, int32_t rank);

/* fp64 numbers in all; 0 where no gradient is cut or owned. */
int64_t weft_norm_nodes(const weft_plan *plan);

/* Grid cells of n elements. */
int64_t weft_norm_cells(const weft_plan *plan, int64_t n);

/* Scratch of the kernels of NORM; asked before anything is placed: room for all tensors whole, and for their nodes. */
int64_t weft_norm_work(const weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device);

#endif
