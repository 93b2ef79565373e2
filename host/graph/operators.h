/* host/graph/operators.h: the table of operators.
 *
 * An operator is a row of functions, one file each. It does not declare which values its backward keeps from forward.
 * The plan writes the backward first and keeps every value that it reads. */
#ifndef WEFT_HOST_GRAPH_OPERATORS_H
#define WEFT_HOST_GRAPH_OPERATORS_H

#include "graph/record.h"

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
    bool any_places;   /* its output has the positions of its first input, which may differ from the micro-batch's */
};

/* The functions of an operator, by naming convention. */
#define WEFT_OPERATOR(prefix) .infer = prefix##_infer, .forward = prefix##_forward, .backward = prefix##_backward

extern const weft_operator weft_operator_embedding, weft_operator_linear, weft_operator_rms_norm,
    weft_operator_layer_norm, weft_operator_rope, weft_operator_attention, weft_operator_activation,
    weft_operator_swiglu, weft_operator_geglu, weft_operator_scale, weft_operator_add, weft_operator_multiply,
    weft_operator_weight_norm, weft_operator_dropout, weft_operator_matrix, weft_operator_attention_with_prefix,
    weft_operator_prefix_attention, weft_operator_lm_head, weft_operator_custom;

/* The operators that a model calls, one function per operator. */
extern const weft_ops weft_graph_ops;

weft_value weft_op_embedding(weft_graph *graph, weft_value ids, weft_weight *table);
weft_value weft_op_linear(weft_graph *graph, weft_value x, weft_weight *weight);
weft_value weft_op_rms_norm(weft_graph *graph, weft_value x, weft_weight *gain, double eps);
weft_value weft_op_layer_norm(weft_graph *graph, weft_value x, weft_weight *weight, double eps);
weft_value weft_op_rope(weft_graph *graph, weft_value x, weft_value positions, weft_table *table,
                        const weft_rope_args *args);
weft_value weft_op_attention(weft_graph *graph, weft_value q, weft_value k, weft_value v, weft_value starts,
                             const weft_attention_args *args);
weft_value weft_op_activation(weft_graph *graph, weft_value x, int32_t form);
weft_value weft_op_gated(weft_graph *graph, weft_value gate, weft_value up, int32_t form);
weft_value weft_op_swiglu(weft_graph *graph, weft_value gate, weft_value up);
weft_value weft_op_scale(weft_graph *graph, weft_value x, double factor);
weft_value weft_op_add(weft_graph *graph, weft_value a, weft_value b);
weft_value weft_op_multiply(weft_graph *graph, weft_value x, weft_weight *factors);
weft_value weft_op_weight_norm(weft_graph *graph, weft_value x, const weft_weight_norm_args *args);
weft_value weft_op_dropout(weft_graph *graph, weft_value x, double p);
weft_value weft_op_matrix(weft_graph *graph, weft_weight *weight);
weft_value weft_op_attention_with_prefix(weft_graph *graph, weft_value q, weft_value k, weft_value v, weft_value starts,
                                         weft_value prefix_k, weft_value prefix_v, const weft_attention_args *args);
weft_value weft_op_prefix_attention(weft_graph *graph, weft_value q, weft_value prefix_k, weft_value prefix_v,
                                    const weft_attention_args *args);
void weft_op_lm_head(weft_graph *graph, weft_value x, weft_weight *weight, const weft_head_args *args);
weft_value weft_op_custom(weft_graph *graph, const weft_custom_op *op, const weft_value *inputs, int32_t n_inputs,
                          int64_t width, const void *args, size_t n);

/* Shared checks of operators. Input i of node must be numbers (not ids), `width` wide (0: any width), with as many
 * positions as the node. */
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
/* Checks that the number of query heads is a multiple of the number of key heads. */
weft_status weft_infer_heads(const weft_attention_args *args, weft_error *err);

#endif
