/* host/graph/record.h: what a recorded segment is: values, nodes, and the graph that holds them.
 *
 * Everything here is decided while the model's forward runs and is only read afterwards, except `kept` and `tape`,
 * which the plan fills in. How a node computes is in its operator (operators.h); where bytes lie during a pass is in
 * lower.h. */
#ifndef WEFT_HOST_GRAPH_RECORD_H
#define WEFT_HOST_GRAPH_RECORD_H

#include "base/sizes.h"
#include "graph/graph.h"
#include "graph/lower.h"

enum { WEFT_NODE_INPUTS = 8, WEFT_NODE_CONSTANTS = 3 };

typedef struct weft_operator weft_operator;

typedef struct weft_value_record {
    int32_t node;  /* that makes it; -1: it comes from outside */
    int32_t home;  /* weft_home of a value from outside; else WEFT_HOME_NONE */
    int32_t dtype; /* weft_dtype */
    int64_t width; /* elements per place (last dimension) */
    int64_t count; /* elements in all; B * T * width except for statistics */
    bool wants_gradient;
    bool named;   /* evaluation hands it out */
    bool kept;    /* backward reads it, and a node makes it: it lies on the tape */
    int64_t tape; /* bytes from the tape's start, if kept */
} weft_value_record;

/* One operator on values. Fields that an operator has no use for are zero. */
typedef struct weft_node {
    const weft_operator *op;
    char label[64]; /* what distinguishes it: "q_proj" */
    weft_value inputs[WEFT_NODE_INPUTS];
    int32_t n_inputs;
    weft_value output;              /* id 0: none (lm_head) */
    weft_value statistic;           /* what forward makes for backward alone: rstd (R), lse (B,H,T); id 0: none */
    int64_t width, statistic_count; /* set by infer: of output, and elements of statistic; 0: none */
    int64_t places;                 /* of output, where they are others than the leaf's; 0: those */
    const weft_weight *weight;
    const weft_weight *constants[WEFT_NODE_CONSTANTS]; /* weights that it reads and gives no gradient; NULL: none */
    const weft_table *table;
    weft_rope_args rope;
    weft_attention_args attention;
    weft_head_args head;
    double eps;
    double factor; /* scale; p of dropout */
    int32_t site;  /* dropout: which one of the model it is */
    int32_t form;  /* weft_activation_form */
    int64_t state; /* attention in generation: bytes from the state's start to its keys; values follow */
    const weft_custom_op *custom;
    void *custom_args; /* owned */
} weft_node;

typedef struct weft_named_output {
    char *name; /* owned */
    weft_value value;
    int32_t storage; /* in WEFT_PASS_UNTAPED, which is evaluation's only pass */
} weft_named_output;

struct weft_graph {
    const weft_declared *declared;
    int32_t segment;
    weft_graph_spec spec;
    int32_t dtype; /* the spec's */

    weft_value_record *values; /* [0] stands for the invalid value */
    int32_t n_values, values_capacity;
    weft_node *nodes;
    int32_t n_nodes, nodes_capacity;
    weft_graph_read *reads;
    int32_t n_reads, reads_capacity;
    weft_named_output *outputs;
    int32_t n_outputs, outputs_capacity;
    weft_value carry_in, carry_out;    /* id 0: none */
    weft_value ids, positions, starts; /* id 0: not asked for */
    int32_t head;                      /* node of lm_head; -1: none */
    int32_t hidden; /* EVALUATE: storage of what lm_head reads, in WEFT_PASS_UNTAPED; 0: there is none */
    int64_t state_bytes;
    int64_t table_rows; /* that attention with a prefix reads of position tables; 0: none */
    int32_t n_dropouts;

    int32_t adapting;     /* 1 + the site for which the adapter is recording; 0: the model is */
    int32_t n_attentions; /* calls of the model's so far */

    bool failed; /* `failure` holds the first mistake */
    bool open;   /* forward is running */
    bool planned;
    weft_error failure;

    weft_pass passes[WEFT_N_PASSES];
    weft_graph_sizes sizes;
};

/* R = B * T: the leaf's places. */
static inline int64_t weft_graph_places(const weft_graph *graph) {
    return (int64_t)graph->spec.rows * graph->spec.length;
}

/* Of the node's output. */
static inline int64_t weft_node_places(const weft_graph *graph, const weft_node *node) {
    return node->places != 0 ? node->places : weft_graph_places(graph);
}

/* Places of a value: the leaf's, but where it comes from a matrix (weft_ops.matrix). */
static inline int64_t weft_value_places(const weft_value_record *value) {
    return value->width > 0 ? value->count / value->width : 0;
}

static inline weft_value_record *weft_graph_value(const weft_graph *graph, weft_value value) {
    return &graph->values[value.id];
}

/* Positions of a row stay below this: its places, or in generation those of the key-value state. */
static inline int64_t weft_graph_positions(const weft_graph *graph) {
    return graph->spec.cache_rows > graph->spec.length ? graph->spec.cache_rows : graph->spec.length;
}

/* In whole words of 32 bits, in which memory is filled. */
static inline int64_t weft_value_bytes(const weft_value_record *value) {
    return weft_round_up(value->count * weft_dtype_bytes(value->dtype), WEFT_WORD);
}

/* Notes the first mistake; later ones are its consequences. Returns the invalid value. */
weft_value weft_record_fail(weft_graph *graph, const weft_node *node, weft_status code, const char *format, ...)
    WEFT_PRINTF(4, 5);

/* Checks and appends a node: its inputs are values of this graph, its operator's infer accepts it. Returns its output.
 * Takes over node->custom_args, also on failure. */
weft_value weft_record_node(weft_graph *graph, weft_node *node);

/* The model's arguments of a node, at this host's size; `from` NULL: all zero. least: what they have in SDK 1.0. Marks
 * the graph where they are shorter, and where they ask for something that this host does not know. */
void weft_record_arguments(weft_graph *graph, const weft_node *node, void *to, size_t size, const void *from,
                           uint32_t least);

/* A value from outside, made at its first use. */
weft_value weft_record_outside(weft_graph *graph, int32_t home, int32_t dtype, int64_t width);

/* Where a parameter stands among those that the graph reads; n_reads: nowhere. */
int32_t weft_graph_read_index(const weft_graph *graph, int32_t parameter);

/* weft_dtype in which kernels read it: a matrix in the graph's, or packed as it is stored; gains and biases in fp32. */
int32_t weft_graph_read_dtype(const weft_graph *graph, int32_t parameter);

/* Names a value that evaluation hands out; other modes ignore it. */
void weft_record_output(weft_graph *graph, weft_value value, const char *name);

/* The name of a segment, for messages. */
const char *weft_graph_name(const weft_graph *graph);

#endif
