/* host/program/exchange.h: the communication of an instruction: collective, process group and size. Planning,
 * execution, byte counts and time estimates all use it.
 *
 *     GATHER of parameters   all-gather    each rank's shard of every group of the unit (below)
 *     GATHER of a sum        all-gather    each rank's chunk, in fp32
 *     REDUCE                 all-to-all    a row for each rank; with reduce = fast a reduce-scatter of the rows
 *     REFRESH                all-gather    each rank's shard in fp32; of an owned unit one message to the copy
 *     SEND, RECV             a message     a carry or its gradient, or part of a micro-batch gradient
 *
 * A unit is split into R chunks of complete grid cells, identical on all ranks (model/layout.h). Only complete chunks
 * are sent; chunks after a group's last cell are padding. This file does not define buffer locations. */
#ifndef WEFT_HOST_PROGRAM_EXCHANGE_H
#define WEFT_HOST_PROGRAM_EXCHANGE_H

#include "program/plan.h"

typedef enum weft_exchange_way {
    WEFT_EXCHANGE_NONE = 0, /* no communication, or this rank does not participate */
    WEFT_EXCHANGE_ALL_GATHER = 1,
    WEFT_EXCHANGE_ALL_TO_ALL = 2,
    WEFT_EXCHANGE_REDUCE_SCATTER = 3,
    WEFT_EXCHANGE_SEND = 4,
    WEFT_EXCHANGE_RECV = 5
} weft_exchange_way;

/* One rank's part of an exchange. */
typedef struct weft_planned_exchange {
    int32_t way;        /* weft_exchange_way */
    int32_t scope;      /* weft_scope of the process group, by `cut`; 0: a message to or from `peer` */
    weft_cut cut;       /* sharding of the unit */
    int32_t peer;       /* rank; 0 if there is a scope */
    int32_t ranks;      /* size of the process group; 2: a message */
    int32_t place;      /* index of this rank in the group */
    int32_t dtype;      /* weft_dtype of the data; bytes if a unit's groups have several types */
    int64_t n;          /* elements sent to each other rank: a row; an all-gather receives n from each rank */
    int64_t each, sent; /* bytes of n elements; bytes to all other ranks. A RECV has the values of its SEND. */
} weft_planned_exchange;

/* Returns the exchange of any rank, not only the plan's. The job is placed and belongs to a mode of the plan; the
 * instruction is from a checked program of it. A carry has the size of the largest micro-batch. */
weft_planned_exchange weft_exchange_plan(const weft_plan *plan, const weft_job_spec *job,
                                         const weft_instruction *instruction, int32_t rank);

/* Layout of a REDUCE: the data that a rank sends of a unit's trained group, the received rows, and their offsets in
 * the slot. */
typedef struct weft_reduce_rows {
    int32_t ranks;      /* group size = received rows; 1: no communication, the row is the complete input */
    int32_t dtype;      /* type of sent rows: [strategy] reduce_dtype; sums of several micro-batches are fp32 */
    int64_t row, whole; /* elements: of a row; of the complete input */
    int64_t come;       /* byte offset of received rows in the slot: after the sent data if that is not fp32 */
    int64_t wide;       /* offset of one row, widened to fp32 */
    int64_t bytes;      /* of the slot */
} weft_reduce_rows;

/* Computes the layout. is_micro_batch: the input is a micro-batch gradient; otherwise it is the result of the first
 * hop. The unit is trained. */
weft_reduce_rows weft_exchange_reduce(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t scope,
                                      bool is_micro_batch);

/* Returns the elements of one of the R chunks of a unit's trained group; 0: the unit is frozen. */
int64_t weft_exchange_piece(const weft_plan *plan, const weft_job_spec *job, int32_t unit);

/* ---- exchanges of several ranks ----
 *
 * The k-th exchange of a rank in a process group matches the k-th one of the other ranks in it. A message matches
 * by its data. */

typedef struct weft_matches {
    int32_t **of;  /* [world][n_instructions] the exchange of an instruction; -1: only this rank participates */
    int32_t *size; /* [n] number of ranks in it */
    int32_t n, world;
} weft_matches;

/* programs: of all ranks of a placed job; the fields of each instruction are valid. */
weft_matches weft_matches_find(const weft_program *const *programs, const weft_job_spec *job);
void weft_matches_free(weft_matches *matches);

/* ---- layout of the slot of a gathered unit ----
 *
 * Each of its groups is one of
 *
 *     unchanged   the group in its storage type, complete shards from one all-gather; a group in 16 bits is followed by
 *                 its gains and biases, widened to fp32
 *     rounded     stored in fp32 and computed in 16 bits: the rounded group, complete shards from one all-gather; then
 *                 the fp32 gains and biases of each rank's shard, one row per rank; then all gains and biases,
 *                 assembled from the rows
 *
 * because kernels always read gains and biases in fp32. */

/* A group's part of a unit's slot. Offsets are in bytes from the start of the slot. */
typedef struct weft_gathered_part {
    const weft_group *group;
    int32_t index;
    int32_t dtype; /* weft_dtype of the image */
    int64_t shard; /* elements of one rank's shard */
    int64_t image; /* offset of the group in the type of the computation */
    bool rounded, widened;
    int64_t rows, row; /* rounded: offset of the rows; fp32 elements of one row */
    int64_t gains;     /* rounded or widened: offset of the fp32 gains and biases */
} weft_gathered_part;

/* True if the unit is sharded, so that kernels read it from a slot. A unit of one grid cell is on one rank. */
bool weft_gathered_is_due(const weft_job_spec *job, int32_t unit);

/* Computes the layout of a unit's slot, one part per group, and returns its bytes. */
int64_t weft_gathered_layout(const weft_plan *plan, const weft_cut *cut, int32_t unit,
                             weft_gathered_part parts[WEFT_UNIT_GROUPS]);

/* Returns the bytes of a unit's slot; *each: bytes that a GATHER sends to each other rank. Both are 0 if the unit is
 * not sharded. */
int64_t weft_gathered_bytes(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int64_t *each);

/* Computes the elements [*begin, *end) of a parameter in shard j; false: none. */
bool weft_gathered_share(const weft_gathered_part *part, const weft_parameter *parameter, int64_t j, int64_t *begin,
                         int64_t *end);

/* ---- the exchanges of NORM, which computes the norm of the complete gradient, and their layout ----
 *
 * A sharded group of gradients has one fp64 node per grid cell; the groups are contiguous. They are followed by
 * [world][most tensors of one owner] sums of tensors for gradients with owners. The losses of the micro-batches are
 * exchanged as well. Execution, tables, prices and byte counts all iterate by weft_norm_exchange_next. */

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

/* True if the nodes of a trainable group's cells are exchanged. */
bool weft_norm_is_cut(const weft_plan *plan, int32_t group);

/* Returns the only rank with the gradient of a group; -1: no owner. */
int32_t weft_norm_owner(const weft_plan *plan, int32_t group);

/* Returns the number of nodes; 0: no gradient is sharded or owned. */
int64_t weft_norm_nodes(const weft_plan *plan);

/* Returns the grid cells of n elements. */
int64_t weft_norm_cells(const weft_plan *plan, int64_t n);

/* Returns the scratch bytes of the kernels of NORM for any placement: all complete tensors, or all their nodes. */
int64_t weft_norm_work(const weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device);

/* ---- byte sizes of a placement: the state of a rank, the exchange buffers of units, and pending gradient sums
 * (sums.c) ---- */

/* ---- the summation order of terms ----
 *
 * A term is the sum of the micro-batches [lo, hi). Terms arrive one by one and enter a stack of partial sums. A term is
 * added to the top sum if the definition adds the two; otherwise it is pushed as a new sum.
 *
 *     ordered   ((g0 + g1) + g2) + ...                       one sum at any time
 *     tree      halve(first ceil(n/2)) + halve(the rest)     as many sums as the tree is deep
 *
 * Terms are added in arrival order if that differs from the definition, or if the definition leaves the order open
 * (fast). */

#define WEFT_FOLD_DEPTH 34

typedef struct weft_fold {
    int32_t reduce; /* weft_reduce */
    int32_t n;      /* micro-batches of the complete sum */
    int32_t top;    /* sums on the stack */
    bool loose;     /* terms are added in arrival order */
    int32_t lo[WEFT_FOLD_DEPTH], hi[WEFT_FOLD_DEPTH];
} weft_fold;

/* The operations for one term. */
typedef struct weft_fold_step {
    int32_t slot;   /* the target sum of the term */
    bool add;       /* true: add to that sum; false: overwrite it */
    int32_t merges; /* number of subsequent merges of the top sum into the one below it */
} weft_fold_step;

weft_fold weft_fold_begin(int32_t reduce, int32_t n, bool loose);
weft_fold_step weft_fold_push(weft_fold *fold, int32_t lo, int32_t hi);

/* Computes the bytes of a unit's slots and exchanges under the job's placement. */
void weft_sums_size_units(const weft_plan *plan, weft_job *job);

/* Computes the extents that this rank keeps under the placement of a job. */
void weft_sums_hold(weft_plan *plan, const weft_job_spec *job);

/* Plans the training program's gradient sums and the bytes of the pending ones. programs: of all ranks. */
void weft_sums_plan(const weft_plan *plan, weft_mode_plan *mode_plan, const weft_program *const *programs);

/* Finds the rank that computes each micro-batch's loss. */
void weft_sums_losses(weft_mode_plan *mode_plan, const weft_program *const *programs, int32_t world);

/* Returns the byte offset in the gradients' region at which the sums of an exchange of this scope arrive. */
int64_t weft_sums_target(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t scope);
#endif
