/* host/graph/lower.h: a pass over a recorded segment as a flat list of device calls.
 *
 * A pass is data: storages (memory of values), operands (the storage and the bytes that a kernel's field refers to) and
 * calls. The operators write a pass once, then its scratch is allocated, and the pass is replayed. Replay sets the refs
 * in a copy of each call's arguments. */
#ifndef WEFT_HOST_GRAPH_LOWER_H
#define WEFT_HOST_GRAPH_LOWER_H

#include "graph/graph.h"
#include "graph/kernels.h"

/* The slots of the binding that contain storages: name, field of the binding, text for messages. */
#define WEFT_HOMES(X)                                                                                                  \
    X(IDS, ids, "the micro-batch's ids")                                                                               \
    X(TARGETS, targets, "the micro-batch's targets")                                                                   \
    X(WEIGHTS, weights, "the micro-batch's weights")                                                                   \
    X(STARTS, starts, "the micro-batch's document starts")                                                             \
    X(POSITIONS, positions, "the micro-batch's positions")                                                             \
    X(FIRST, first, "the micro-batch's first row")                                                                     \
    X(CARRY_IN, carry_in, "the carry (incoming)")                                                                      \
    X(CARRY_OUT, carry_out, "the carry (outgoing)")                                                                    \
    X(D_CARRY_OUT, d_carry_out, "the carry gradient (from the next segment)")                                          \
    X(D_CARRY_IN, d_carry_in, "the carry gradient (for the previous segment)")                                         \
    X(TAPE, tape, "the tape")                                                                                          \
    X(WORK, work, "scratch")                                                                                           \
    X(STATE, state, "the key-value state")                                                                             \
    X(PAST, past, "the number of positions in the state")                                                              \
    X(SEED, seed, "the loss scale")                                                                                    \
    X(LOGITS, logits, "the logits")

#define WEFT_HOME(name, field, text) WEFT_HOME_##name,
typedef enum weft_home {
    WEFT_HOME_NONE = 0,
    WEFT_HOMES(WEFT_HOME) WEFT_HOME_LOSS,
    WEFT_HOME_PARAMETER, /* from here on `index` selects the element */
    WEFT_HOME_GRADIENT,
    WEFT_HOME_TABLE
} weft_home;

typedef enum weft_pass_kind {
    WEFT_PASS_FORWARD = 0,   /* fills the tape */
    WEFT_PASS_UNTAPED = 1,   /* fills no tape */
    WEFT_PASS_RECOMPUTE = 2, /* fills only the tape */
    WEFT_PASS_BACKWARD = 3,
    WEFT_N_PASSES = 4
} weft_pass_kind;

typedef struct weft_storage {
    int32_t home, index;
    int64_t offset; /* bytes from the slot's start; for WORK set by weft_lowering_end */
    int64_t bytes;
    int32_t first, last; /* range of calls that use it; last -1: unused */
    int32_t holders;     /* backward: number of values that currently share this gradient */
} weft_storage;

typedef struct weft_operand {
    const char *name;
    int32_t storage;
    uint32_t field;        /* bytes from the start of the call's arguments to the weft_ref */
    int64_t offset, bytes; /* range that the kernel reads or writes, from the storage's start */
} weft_operand;

struct weft_call {
    const weft_kernel *kernel;
    int32_t node; /* node that the call belongs to; -1: no node */
    int32_t pass; /* weft_pass_kind */
    int32_t operand, n_operands;
    double flops, bytes;
    weft_kernel_args args;
};

typedef struct weft_pass {
    weft_call *calls;
    int32_t n_calls, calls_capacity;
    weft_operand *operands;
    int32_t n_operands, operands_capacity;
    weft_storage *storages; /* [0] is the absent storage */
    int32_t n_storages, storages_capacity;
    int64_t work;        /* bytes, after placing */
    double flops, bytes; /* bytes: of calls without FLOPs */
} weft_pass;

/* State while a pass is written. */
typedef struct weft_lowering {
    weft_graph *graph;
    weft_pass *pass;
    int32_t kind;                /* weft_pass_kind */
    int32_t node;                /* node for which calls are written */
    int32_t *storage_of;         /* [n_values]: 0: not assigned yet */
    int32_t *gradient_of;        /* [n_values]: backward; 0: no gradient yet */
    int32_t *parameter_of;       /* [n_reads]: storage of the parameter's values; 0: not assigned yet */
    int32_t *weight_gradient_of; /* [n_reads]: storage of its gradient while it is accumulated; 0: no gradient yet */
    int32_t *last_reader;        /* [n_values]: forward: last needed node that reads it; -1: unread */
    bool *needed;                /* [n_nodes]: forward */
} weft_lowering;

weft_lowering weft_lowering_begin(weft_graph *graph, int32_t kind);
/* Frees the state, and assigns an offset to every WORK storage of the pass. */
void weft_lowering_end(weft_lowering *lowering);

/* Adds a storage and returns its index. */
int32_t weft_lower_storage(weft_lowering *lowering, int32_t home, int32_t index, int64_t offset, int64_t bytes);
/* Adds scratch. It is live from the first to the last call that uses it. */
int32_t weft_lower_work(weft_lowering *lowering, int64_t bytes);
/* Returns the storage of a value in this pass. A value that the backward requests from a node is kept on the tape. */
int32_t weft_lower_value(weft_lowering *lowering, weft_value value);
/* Returns the storage of a parameter's values: a matrix as stored, or a gain or bias in fp32; 0 for -1, no bias. */
int32_t weft_lower_parameter(weft_lowering *lowering, int32_t parameter);
int32_t weft_lower_table(weft_lowering *lowering, const weft_table *table, int64_t rows);

/* Appends a call with a copy of args (size bytes), its operands, and the workspace that the kernel requires. An operand
 * with storage 0 leaves its field empty; bytes -1: the complete storage. In the macros, `args` is the name of the
 * arguments. */
void weft_lower_call(weft_lowering *lowering, const weft_kernel *kernel, const void *args, size_t size,
                     const weft_operand *operands, size_t n);
#define WEFT_CALL(lowering, kernel, args, ...)                                                                         \
    weft_lower_call(lowering, kernel, &(args), sizeof(args), (const weft_operand[]){__VA_ARGS__},                      \
                    sizeof((const weft_operand[]){__VA_ARGS__}) / sizeof(weft_operand))
#define WEFT_PART(name, member, storage, offset, bytes)                                                                \
    ((weft_operand){name, storage, (uint32_t)offsetof(__typeof__(args), member), offset, bytes})
#define WEFT_AT(member, storage) WEFT_PART(#member, member, storage, 0, -1)

/* Calls that belong to no operator. */
void weft_lower_copy(weft_lowering *lowering, int32_t to, int32_t from, int64_t bytes);
void weft_lower_zero(weft_lowering *lowering, int32_t to);
void weft_lower_add(weft_lowering *lowering, int32_t y, int32_t a, int32_t b, int64_t n, int32_t dtype); /* y = a + b */

/* Removes the last call if it is y = a + b, and returns a and b: the caller's next call computes y itself. */
bool weft_lower_take_add(weft_lowering *lowering, int32_t y, int32_t *a, int32_t *b);

/* Grows an array of n elements for one more. New elements are zero. */
void weft_array_reserve(void **items, int32_t n, int32_t *capacity, size_t item);

/* ---- gradients of values (gradient.c) ----
 *
 * The backward visits the nodes from last to first. The gradient of a value is the sum of its readers' contributions in
 * that order: the first contribution overwrites, later ones accumulate. A contribution may be another gradient
 * unchanged, as in an addition. Then both values share one storage, and the storage is copied only if one of them
 * receives a further contribution. */

/* Returns the storage of a value's accumulated gradient; 0 if the loss does not depend on the value. */
int32_t weft_gradient_of(const weft_lowering *lowering, weft_value value);

/* Returns the storage for the contribution of a kernel that can accumulate, and sets the kernel's flag *accumulate.
 * Returns 0 if the gradient is not required. */
int32_t weft_gradient_target(weft_lowering *lowering, weft_value value, int32_t *accumulate);

/* Does the same for a kernel that can work in place on its operand `over`, a gradient that no later call reads. */
int32_t weft_gradient_target_over(weft_lowering *lowering, weft_value value, int32_t over, int32_t *accumulate);

/* Returns the storage for the contribution of a kernel that only overwrites. Call begin for each input before the
 * kernel's call, and end for each input after it. */
int32_t weft_gradient_begin(weft_lowering *lowering, weft_value value);
/* Does the same for a kernel that always computes all its gradients: those that are not required go to scratch. */
int32_t weft_gradient_begin_always(weft_lowering *lowering, weft_value value);
void weft_gradient_end(weft_lowering *lowering, weft_value value, int32_t begun);

/* Adds a contribution that equals the gradient in `storage`. */
void weft_gradient_share(weft_lowering *lowering, weft_value value, int32_t storage);

/* Releases the gradient of `value`: the node that computes `value` was its last reader. */
void weft_gradient_release(weft_lowering *lowering, weft_value value);

/* ---- weight objects (weight.c), dense or packed ---- */

/* True if any parameter of the weight is trained. */
bool weft_weight_trains(const weft_graph *graph, const weft_weight *weight);
/* Returns the storage of the complete gradient of the weight's matrix or bias; 0: frozen or absent. Sets the kernel's
 * flag. */
int32_t weft_weight_gradient(weft_lowering *lowering, const weft_weight *weight, int32_t parameter,
                             int32_t *accumulate);

/* y (m, out) = x W^T + bias, in dtype_y, for m rows of x with a distance of `stride` elements; the first row starts at
 * element `offset` of the storage. */
void weft_weight_product(weft_lowering *lowering, const weft_weight *weight, int32_t y, int32_t dtype_y, int32_t x,
                         int64_t m, int64_t stride, int64_t offset);
/* Ends the backward: adds gradients from scratch, and zeroes gradients without a contribution. */
void weft_weight_finish_gradients(weft_lowering *lowering);

#endif
