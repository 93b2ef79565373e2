/* host/graph/add.c: y = a + b. Backward runs no kernel: both inputs share the output's gradient. */
#include "graph/gradient.h"
#include "graph/operators.h"

static void add_forward(weft_lowering *l, const weft_node *node) {
    weft_lower_add(l, weft_lower_value(l, node->output), weft_lower_value(l, node->inputs[0]),
                   weft_lower_value(l, node->inputs[1]), weft_node_places(l->graph, node) * node->width,
                   l->graph->dtype);
}

static void add_backward(weft_lowering *l, const weft_node *node) {
    const int32_t dy = weft_gradient_of(l, node->output);
    weft_gradient_share(l, node->inputs[0], dy);
    weft_gradient_share(l, node->inputs[1], dy);
}

const weft_operator weft_operator_add = {.name = "add",
                                         .inputs = {"a", "b"},
                                         .infer = weft_infer_alike,
                                         .forward = add_forward,
                                         .backward = add_backward,
                                         .in_place = 1u << 0 | 1u << 1,
                                         .any_places = true};

weft_value weft_op_add(weft_graph *graph, weft_value a, weft_value b) {
    weft_node node = {.op = &weft_operator_add, .inputs = {a, b}, .n_inputs = 2};
    return weft_record_node(graph, &node);
}
