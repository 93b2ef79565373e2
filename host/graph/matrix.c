/* host/graph/matrix.c: a weight's matrix (out, in) as a value with `out` positions. The parameter receives its gradient
 * in fp32. */
#include "graph/gradient.h"
#include "graph/operators.h"
#include "graph/weight.h"

static weft_status matrix_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_status status = weft_infer_dense(graph, node, err);
    if (status != WEFT_OK) return status;
    node->width = node->weight->in;
    node->places = node->weight->out;
    return WEFT_OK;
}

static void matrix_forward(weft_lowering *l, const weft_node *node) {
    const int32_t from = weft_weight_values(l, node->weight), to = weft_lower_value(l, node->output);
    const weft_copy_args args = {.bytes = weft_dtype_span(l->graph->dtype, node->places * node->width)};
    weft_lower_begin(l, &weft_kernel_copy, &args, sizeof args);
    WEFT_BIND(l, weft_copy_args, to, to);
    WEFT_BIND(l, weft_copy_args, from, from);
    weft_lower_end(l);
}

/* Runs sum_rows on one row of all elements, which widens them and accumulates. */
static void matrix_backward(weft_lowering *l, const weft_node *node) {
    weft_sum_rows args = {
        .struct_size = (uint32_t)sizeof args, .rows = 1, .width = node->places * node->width, .dtype = l->graph->dtype};
    const int32_t dy = weft_gradient_of(l, node->output);
    const int32_t dweight = weft_weight_gradient(l, node->weight, &args.accumulate);
    if (dweight == 0) return;
    weft_lower_begin(l, &weft_kernel_sum_matrix, &args, sizeof args);
    WEFT_BIND(l, weft_sum_rows, x, dy);
    WEFT_BIND(l, weft_sum_rows, out, dweight);
    weft_lower_end(l);
}

const weft_operator weft_operator_matrix = {
    .name = "matrix", .infer = matrix_infer, .forward = matrix_forward, .backward = matrix_backward};

weft_value weft_op_matrix(weft_graph *graph, weft_weight *weight) {
    weft_node node = {.op = &weft_operator_matrix, .weight = weight};
    return weft_record_node(graph, &node);
}
