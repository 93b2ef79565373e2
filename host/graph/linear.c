/* host/graph/linear.c: y = x W^T + optional bias over a weight object, or its adapted version. x: (B,T,in), y:
 * (B,T,out). */
#include "graph/adapt.h"
#include "graph/gradient.h"
#include "graph/operators.h"
#include "graph/weight.h"

static weft_status linear_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_value_record *x = weft_graph_value(graph, node->inputs[0]);
    weft_status status = weft_infer_matrix(node, err);
    if (status == WEFT_OK) status = weft_infer_numbers(graph, node, 0, 0, err);
    if (status != WEFT_OK) return status;
    if (x->width != node->weight->in)
        return weft_error_set(err, WEFT_E_PLUGIN, "`x` is %lld wide; the weight is (%lld, %lld) and takes %lld",
                              (long long)x->width, (long long)node->weight->out, (long long)node->weight->in,
                              (long long)node->weight->in);
    node->width = node->weight->out;
    return WEFT_OK;
}

static void linear_forward(weft_lowering *l, const weft_node *node) {
    weft_weight_product(l, node->weight, weft_lower_value(l, node->output), l->graph->dtype,
                        weft_lower_value(l, node->inputs[0]), weft_node_places(l->graph, node), node->weight->in, 0);
}

static void linear_backward(weft_lowering *l, const weft_node *node) {
    const int32_t dy = weft_gradient_of(l, node->output);
    const int64_t places = weft_node_places(l->graph, node);
    int32_t accumulate = 0, dx = 0;
    weft_weight_product_dw(l, node->weight, dy, node->inputs[0], places);
    dx = weft_gradient_target(l, node->inputs[0], &accumulate);
    if (dx != 0) weft_weight_product_dx(l, node->weight, dx, accumulate, dy, places);
}

const weft_operator weft_operator_linear = {.name = "linear",
                                            .inputs = {"x"},
                                            .infer = linear_infer,
                                            .forward = linear_forward,
                                            .backward = linear_backward,
                                            .any_places = true};

weft_value weft_op_linear(weft_graph *graph, weft_value x, weft_weight *weight) {
    weft_node node = {.op = &weft_operator_linear, .inputs = {x}, .n_inputs = 1, .weight = weight};
    return weft_adapts(graph, weight) ? weft_adapt_linear(graph, x, weight) : weft_record_node(graph, &node);
}
