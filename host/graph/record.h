/* host/graph/record.h: a recorded segment: values, nodes, and the graph that owns them.
 *
 * The model's forward sets all fields, and later stages only read them, except `kept` and `tape`, which the plan sets.
 * An operator's computation is defined in operators.h; the memory of values during a pass in lower.h. */
#ifndef WEFT_HOST_GRAPH_RECORD_H
#define WEFT_HOST_GRAPH_RECORD_H

#include "base/units.h"
#include "graph/graph.h"
#include "graph/lower.h"

enum { WEFT_NODE_INPUTS = 8, WEFT_NODE_CONSTANTS = 3 };

typedef struct weft_operator weft_operator;

typedef struct weft_value_record {
    int32_t node;  /* node that computes it; -1: an external value */
    int32_t home;  /* weft_home of an external value; else WEFT_HOME_NONE */
    int32_t dtype; /* weft_dtype */
    int64_t width; /* elements per position (last dimension) */
    int64_t count; /* total elements; B * T * width except for statistics */
    bool wants_gradient;
    bool named;   /* an output of evaluation */
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
    weft_value statistic;           /* computed by forward only for backward: rstd (R), lse (B,H,T); id 0: no
                                       statistic */
    int64_t width, statistic_count; /* set by infer: width of the output, elements of the statistic; 0: absent */
    int64_t places;                 /* positions of the output if they differ from the micro-batch's, else 0 */
    const weft_weight *weight;
    const weft_weight *constants[WEFT_NODE_CONSTANTS]; /* weights that it reads as constants, without a gradient; may be
                                                          NULL */
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

typedef struct weft_named_output {
    char *name; /* owned */
    weft_value value;
    int32_t storage; /* in WEFT_PASS_UNTAPED, the only pass of evaluation */
} weft_named_output;

struct weft_graph {
    const weft_declared *declared;
    int32_t segment;
    weft_graph_spec spec;
    int32_t dtype; /* the spec's */

    weft_value_record *values; /* [0] is the invalid value */
    int32_t n_values, values_capacity;
    weft_node *nodes;
    int32_t n_nodes, nodes_capacity;
    weft_graph_read *reads;
    int32_t n_reads, reads_capacity;
    weft_named_output *outputs;
    int32_t n_outputs, outputs_capacity;
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
    bool planned;
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

/* Returns the upper bound of positions in a sequence: its length, or in generation the length of the key-value
 * state. */
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

/* Copies the model's arguments of a node into this host's struct; `from` NULL: all zero. `least` is the struct's size
 * in SDK 1.0. Fails the graph if the arguments are shorter, or set fields that this host does not know. */
void weft_record_arguments(weft_graph *graph, const weft_node *node, void *to, size_t size, const void *from,
                           uint32_t least);

/* Appends an external value, at its first use. */
weft_value weft_record_outside(weft_graph *graph, int32_t home, int32_t dtype, int64_t width);

/* Returns a parameter's index among the graph's reads; n_reads if the graph does not read it. */
int32_t weft_graph_read_index(const weft_graph *graph, int32_t parameter);

/* Returns the weft_dtype in which kernels read the parameter: a matrix in the graph's dtype or packed as stored, gains
 * and biases in fp32. */
int32_t weft_graph_read_dtype(const weft_graph *graph, int32_t parameter);

/* Names a value as an evaluation output; other modes ignore it. */
void weft_record_output(weft_graph *graph, weft_value value, const char *name);

/* Returns the segment's name for messages. */
const char *weft_graph_name(const weft_graph *graph);

#endif
