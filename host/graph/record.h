/* host/graph/record.h: a recorded segment: values, nodes, and the graph that owns them; and its passes.
 *
 * The model's forward sets all fields of values and nodes, and later stages only read them, except `kept` and `tape`,
 * which the plan sets.
 *
 * A pass is a flat list of device calls, as data: storages (memory of values), operands (the storage and the bytes that
 * a kernel's field refers to) and calls. The operators write a pass once, then its scratch is allocated, and the pass
 * is replayed. Replay sets the refs in a copy of each call's arguments. */
#ifndef WEFT_HOST_GRAPH_RECORD_H
#define WEFT_HOST_GRAPH_RECORD_H

#include "base/units.h"
#include "graph/kernels.h"

/* ---- passes ---- */

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
    int32_t n_calls;
    weft_operand *operands;
    int32_t n_operands;
    weft_storage *storages; /* [0] is the absent storage */
    int32_t n_storages;
    int64_t work; /* bytes, after placing */
    double flops;
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

/* ---- the record ---- */

enum { WEFT_NODE_INPUTS = 8 };
/* weight_norm's constants */
enum { WEFT_CONSTANT_MATRIX, WEFT_CONSTANT_DOWN, WEFT_CONSTANT_UP, WEFT_NODE_CONSTANTS };

typedef struct weft_operator weft_operator;

typedef struct weft_value_record {
    int32_t node;  /* node that computes it; -1: an external value */
    int32_t home;  /* weft_home of an external value; else WEFT_HOME_NONE */
    int32_t dtype; /* weft_dtype */
    int64_t width; /* elements per position (last dimension) */
    int64_t count; /* total elements; B * T * width except for statistics */
    bool wants_gradient;
    bool kept;    /* on the tape: a node computes it and backward reads it */
    int64_t tape; /* bytes from the tape's start, if kept */
} weft_value_record;

/* One operator call on values. Fields that the operator does not use are zero. */
typedef struct weft_node {
    const weft_operator *op;
    char label[64]; /* distinguishing name: "q_proj" */
    weft_value inputs[WEFT_NODE_INPUTS];
    int32_t n_inputs;
    weft_value output;              /* id 0: no output (lm_head) */
    weft_value statistic;           /* computed only for backward: rstd (R), lse (B,H,T); id 0: absent */
    int64_t width, statistic_count; /* set by infer: width of the output, elements of the statistic; 0: absent */
    int64_t places;                 /* positions of the output if they differ from the micro-batch's, else 0 */
    const weft_weight *weight;
    const weft_weight *constants[WEFT_NODE_CONSTANTS]; /* weights without a gradient, or NULL */
    const weft_table *table;
    weft_rope_args rope;
    weft_attention_args attention;
    weft_head_args head;
    double eps;
    double factor; /* scale; p of dropout */
    int32_t site;  /* dropout: ordinal of the dropout in the model */
    int32_t form;  /* weft_activation_form */
    int64_t state; /* attention in generation: bytes from the state's start to its keys; values follow */
    const weft_custom_op *custom;
    void *custom_args; /* owned */
} weft_node;

struct weft_graph {
    const weft_declared *declared;
    int32_t segment;
    weft_graph_spec spec;
    int32_t dtype; /* the spec's */

    weft_value_record *values; /* [0] is the invalid value */
    int32_t n_values;
    weft_node *nodes;
    int32_t n_nodes;
    weft_graph_read *reads;
    int32_t n_reads;
    weft_value carry_in, carry_out;    /* id 0: absent */
    weft_value ids, positions, starts; /* id 0: not used by the model */
    int32_t head;                      /* node of lm_head; -1: absent */
    int32_t hidden;                    /* EVALUATE: storage of lm_head's input, in WEFT_PASS_UNTAPED; 0: absent */
    int64_t state_bytes;
    int64_t table_rows; /* rows of position tables that attention with a prefix reads; 0: not used */
    int32_t n_dropouts;

    int32_t adapting;     /* 1 + the site for which an adapter is recording; 0: the model is recording */
    int32_t n_attentions; /* attention calls by the model so far */

    bool failed; /* `failure` contains the first error */
    bool open;   /* forward is running */
    weft_error failure;

    weft_pass passes[WEFT_N_PASSES];
    weft_graph_sizes sizes;
};

/* Returns R = B * T, the positions of the micro-batch. */
static inline int64_t weft_graph_places(const weft_graph *graph) {
    return (int64_t)graph->spec.rows * graph->spec.length;
}

/* Returns the positions of the node's output. */
static inline int64_t weft_node_places(const weft_graph *graph, const weft_node *node) {
    return node->places != 0 ? node->places : weft_graph_places(graph);
}

/* Returns the positions of a value: the micro-batch's, unless the value comes from a matrix (weft_ops.matrix). */
static inline int64_t weft_value_places(const weft_value_record *value) {
    return value->width > 0 ? value->count / value->width : 0;
}

static inline weft_value_record *weft_graph_value(const weft_graph *graph, weft_value value) {
    return &graph->values[value.id];
}

/* Returns the maximum of positions in a sequence: its length, or in generation that of the key-value state. */
static inline int64_t weft_graph_positions(const weft_graph *graph) {
    return graph->spec.cache_rows > graph->spec.length ? graph->spec.cache_rows : graph->spec.length;
}

/* Rounded up to 32-bit words, the unit of memory fills. */
static inline int64_t weft_value_bytes(const weft_value_record *value) {
    return weft_round_up(value->count * weft_dtype_bytes(value->dtype), WEFT_WORD);
}

/* Records the first error and ignores later ones, which are its consequences. Returns the invalid value. */
weft_value weft_record_fail(weft_graph *graph, const weft_node *node, weft_status code, const char *format, ...)
    WEFT_PRINTF(4, 5);

/* Checks a node and appends it. Its inputs must be values of this graph, and its operator's infer must accept it.
 * Returns the output. Takes ownership of node->custom_args, also on failure. */
weft_value weft_record_node(weft_graph *graph, weft_node *node);

/* Appends an external value, at its first use. */
weft_value weft_record_outside(weft_graph *graph, int32_t home, int32_t dtype, int64_t width);

/* Returns a parameter's index among the graph's reads; n_reads if the graph does not read it. */
int32_t weft_graph_read_index(const weft_graph *graph, int32_t parameter);

/* Returns the dtype in which kernels read the parameter: matrices the graph's or packed, gains and biases fp32. */
int32_t weft_graph_read_dtype(const weft_graph *graph, int32_t parameter);

/* Returns the segment's name for messages. */
const char *weft_graph_name(const weft_graph *graph);

/* ---- writing a pass (lowering.c) ---- */

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

/* ---- gradients of values (lowering.c) ----
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

/* ---- operators ----
 *
 * An operator is a row of functions. It does not declare which values its backward keeps from forward: the plan writes
 * the backward first and keeps every value that it reads. */

enum { WEFT_INPUT_NAMES = 6 };

struct weft_operator {
    const char *name;
    const char *inputs[WEFT_INPUT_NAMES]; /* names for messages; further inputs are numbered */

    /* Checks widths and types; sets width and statistic_count. err: a message about the operator's arguments. */
    weft_status (*infer)(const weft_graph *graph, weft_node *node, weft_error *err);
    /* Writes the device calls that compute the node's output. */
    void (*forward)(weft_lowering *lowering, const weft_node *node);
    /* Writes the device calls that turn the output's gradient into gradient contributions of its inputs and weight.
     * Called only if the output has a gradient, or for lm_head. */
    void (*backward)(weft_lowering *lowering, const weft_node *node);

    uint32_t in_place; /* bit i: forward may overwrite input i with its output, if no later call reads the input */
    /* A linear function of input 0 (WEFT_LINEAR): writes y = or += f(x); backward: its transpose. */
    void (*apply)(weft_lowering *lowering, const weft_node *node, int32_t x, int32_t y, int32_t accumulate,
                  bool backward);
    bool any_places; /* its output has the positions of input 0, which may differ from the micro-batch's; before infer,
                        input 0 is known to be numbers, and the width is its width */
};

/* The functions of an operator, by naming convention. */
#define WEFT_OPERATOR(prefix) .infer = prefix##_infer, .forward = prefix##_forward, .backward = prefix##_backward
#define WEFT_LINEAR(prefix)   .apply = prefix##_apply, .forward = weft_linear_forward, .backward = weft_linear_backward
void weft_linear_forward(weft_lowering *lowering, const weft_node *node);
void weft_linear_backward(weft_lowering *lowering, const weft_node *node);

extern const weft_operator weft_operator_embedding, weft_operator_linear, weft_operator_rms_norm,
    weft_operator_layer_norm, weft_operator_rope, weft_operator_attention, weft_operator_activation,
    weft_operator_swiglu, weft_operator_geglu, weft_operator_scale, weft_operator_add, weft_operator_multiply,
    weft_operator_weight_norm, weft_operator_dropout, weft_operator_matrix, weft_operator_attention_with_prefix,
    weft_operator_prefix_attention, weft_operator_lm_head, weft_operator_custom;

/* The operators that a model calls, one function per operator. */
extern const weft_ops weft_graph_ops;

/* Shared checks of operators. Input i of node must be numbers (not ids), `width` wide (0: any width), with `places`
 * positions, or with as many as the node. */
weft_status weft_infer_shape(const weft_graph *graph, const weft_node *node, int32_t i, int64_t width, int64_t places,
                             weft_error *err);
weft_status weft_infer_numbers(const weft_graph *graph, const weft_node *node, int32_t i, int64_t width,
                               weft_error *err);
/* Checks that input i is one int32 per position. */
weft_status weft_infer_places(const weft_graph *graph, const weft_node *node, int32_t i, weft_error *err);
/* Check that the weight is a matrix; that it is a dense matrix; or that it is a gain whose length divides `width`. */
weft_status weft_infer_matrix(const weft_node *node, weft_error *err);
weft_status weft_infer_dense(const weft_graph *graph, const weft_node *node, weft_error *err);
weft_status weft_infer_gain(const weft_node *node, int64_t width, weft_error *err);
/* Checks that the matrix, which `ids` index or logits are computed from, has vocab_size rows. */
weft_status weft_infer_vocabulary(const weft_graph *graph, const weft_node *node, weft_error *err);

/* Returns the bytes of the keys of the node's attention in the state of generation; its values have as many. */
int64_t weft_attention_state_bytes(const weft_graph *graph, const weft_node *node);

#endif
