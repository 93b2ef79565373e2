/* host/graph/lower.h: a pass over a recorded segment as a flat list of device calls.
 *
 * A pass is data: storages (where bytes lie), operands (which storage a kernel's field points at, and how much of it
 * the kernel touches) and calls. It is written once by the operators, placed, and replayed; replaying patches refs into
 * a copy of each call's arguments. */
#ifndef WEFT_HOST_GRAPH_LOWER_H
#define WEFT_HOST_GRAPH_LOWER_H

#include "graph/graph.h"
#include "graph/kernels.h"

/* Where a storage lies: a slot of the binding. */
typedef enum weft_home {
    WEFT_HOME_NONE = 0,
    WEFT_HOME_IDS,
    WEFT_HOME_TARGETS,
    WEFT_HOME_WEIGHTS,
    WEFT_HOME_STARTS,
    WEFT_HOME_POSITIONS,
    WEFT_HOME_FIRST,
    WEFT_HOME_CARRY_IN,
    WEFT_HOME_CARRY_OUT,
    WEFT_HOME_D_CARRY_OUT,
    WEFT_HOME_D_CARRY_IN,
    WEFT_HOME_TAPE,
    WEFT_HOME_WORK,
    WEFT_HOME_STATE,
    WEFT_HOME_PAST,
    WEFT_HOME_LOSS,
    WEFT_HOME_SEED,
    WEFT_HOME_LOGITS,
    WEFT_HOME_PARAMETER, /* from here on `index` says which */
    WEFT_HOME_GRADIENT,
    WEFT_HOME_TABLE
} weft_home;

typedef enum weft_pass_kind {
    WEFT_PASS_FORWARD = 0,   /* fills the tape */
    WEFT_PASS_UNTAPED = 1,   /* keeps nothing */
    WEFT_PASS_RECOMPUTE = 2, /* makes the tape alone */
    WEFT_PASS_BACKWARD = 3,
    WEFT_N_PASSES = 4
} weft_pass_kind;

typedef struct weft_storage {
    int32_t home, index;
    int64_t offset; /* bytes from the slot's start; in WORK set by weft_pass_place */
    int64_t bytes;
    int32_t first, last; /* calls that touch it; last -1: none */
    int32_t holders;     /* backward: how many values' gradients it is at the moment of writing the pass */
} weft_storage;

typedef struct weft_operand {
    const char *name;
    int32_t storage;
    uint32_t field;        /* bytes from the start of the call's arguments to the weft_ref */
    int64_t offset, bytes; /* what the kernel touches, from the storage's start */
    uint32_t dtype_field;  /* of a parameter: where the arguments name the type in which it is bound; 0: nowhere */
} weft_operand;

struct weft_call {
    const weft_kernel *kernel;
    int32_t node; /* on whose behalf; -1: none */
    int32_t pass; /* weft_pass_kind */
    int32_t operand, n_operands;
    double flops, bytes; /* one of them 0 */
    weft_kernel_args args;
};

typedef struct weft_pass {
    weft_call *calls;
    int32_t n_calls, calls_capacity;
    weft_operand *operands;
    int32_t n_operands, operands_capacity;
    weft_storage *storages; /* [0] is nothing */
    int32_t n_storages, storages_capacity;
    int64_t work; /* bytes, after placing */
    double flops, bytes;
} weft_pass;

/* A pass while it is being written. Errors are sticky: after the first, calls do nothing and storages are 0. */
typedef struct weft_lowering {
    weft_graph *graph;
    weft_pass *pass;
    int32_t kind;                /* weft_pass_kind */
    int32_t node;                /* whose calls are being written */
    int32_t *storage_of;         /* [n_values]: 0: none yet */
    int32_t *gradient_of;        /* [n_values]: backward: 0: none yet */
    int32_t *parameter_of;       /* [n_reads]: storage of the parameter's values; 0: none yet */
    int32_t *weight_gradient_of; /* [n_reads]: where its gradient is being formed; 0: nowhere yet */
    int32_t *last_reader;        /* [n_values]: forward: last needed node that reads it; -1: none */
    bool *needed;                /* [n_nodes]: forward */
    weft_status status;
    weft_error *err;
} weft_lowering;

weft_status weft_lowering_init(weft_lowering *out, weft_graph *graph, int32_t kind, weft_error *err);
void weft_lowering_free(weft_lowering *lowering);
void weft_pass_free(weft_pass *pass);

/* A new storage. */
int32_t weft_lower_storage(weft_lowering *lowering, int32_t home, int32_t index, int64_t offset, int64_t bytes);
/* Scratch that lives as long as calls touch it. */
int32_t weft_lower_work(weft_lowering *lowering, int64_t bytes);
/* Where a value lies in this pass. Backward asking for a value that a node makes is what keeps it on the tape. */
int32_t weft_lower_value(weft_lowering *lowering, weft_value value);
int32_t weft_lower_parameter(weft_lowering *lowering, int32_t parameter);
int32_t weft_lower_table(weft_lowering *lowering, const weft_table *table, int64_t rows);
/* A part of the leaf that no operator took as a value: targets, weights. 4 bytes per place. */
int32_t weft_lower_leaf(weft_lowering *lowering, int32_t home);

/* Begins a call with a copy of args (n bytes); then its operands; then the end, which adds the workspace it asks for.
 */
void weft_lower_begin(weft_lowering *lowering, const weft_kernel *kernel, const void *args, size_t n);
/* All of a storage; storage 0 leaves the field none. */
void weft_lower_bind(weft_lowering *lowering, const char *name, size_t field, int32_t storage);
void weft_lower_bind_part(weft_lowering *lowering, const char *name, size_t field, int32_t storage, int64_t offset,
                          int64_t bytes);
/* The operand bound last is a parameter, whose type as bound goes into this field, an int32. */
void weft_lower_dtype(weft_lowering *lowering, size_t field);
void weft_lower_end(weft_lowering *lowering);
#define WEFT_BIND(lowering, type, field, storage) weft_lower_bind(lowering, #field, offsetof(type, field), storage)

/* Calls that need no operator. */
void weft_lower_copy(weft_lowering *lowering, int32_t to, int32_t from);
void weft_lower_zero(weft_lowering *lowering, int32_t to);
void weft_lower_add(weft_lowering *lowering, int32_t y, int32_t a, int32_t b, int64_t n, int32_t dtype); /* y = a + b */

/* If the last call is y = a + b: takes it back, for the next one makes y too, and says a and b. */
bool weft_lower_take_add(weft_lowering *lowering, int32_t y, int32_t *a, int32_t *b);

/* Writes a pass: forward.c, backward.c. */
weft_status weft_lower_forward(weft_graph *graph, int32_t kind, weft_error *err);
weft_status weft_lower_backward(weft_graph *graph, weft_error *err);

/* Gives every WORK storage its offset so that no two that live at the same call overlap. */
weft_status weft_pass_place(weft_pass *pass, weft_error *err);

/* Grows an array to hold one more; items stay zero until they are written. */
weft_status weft_array_reserve(void **items, int32_t n, int32_t *capacity, size_t item, const char *what,
                               weft_error *err);

#endif
