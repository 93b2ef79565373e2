/* host/graph/scale.c: y = factor * x. Both (B,T,D). */
#include "graph/gradient.h"
#include "graph/operators.h"

static weft_status scale_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    weft_status status = weft_infer_numbers(graph, node, 0, 0, err);
    if (status == WEFT_OK && !(node->factor - node->factor == 0.0))
        status = weft_error_set(err, WEFT_E_PLUGIN, "the factor is %g; a finite one is needed", node->factor);
    node->width = weft_graph_value(graph, node->inputs[0])->width;
    return status;
}

static void lower_scale(weft_lowering *l, const weft_node *node, int32_t x, int32_t y, int32_t accumulate) {
    const weft_scale args = {.struct_size = (uint32_t)sizeof args,
                             .n = weft_node_places(l->graph, node) * node->width,
                             .factor = node->factor,
                             .accumulate = accumulate,
                             .dtype = l->graph->dtype};
    weft_lower_begin(l, &weft_kernel_scale, &args, sizeof args);
    WEFT_BIND(l, weft_scale, x, x);
    WEFT_BIND(l, weft_scale, y, y);
    weft_lower_end(l);
}

static void scale_forward(weft_lowering *l, const weft_node *node) {
    lower_scale(l, node, weft_lower_value(l, node->inputs[0]), weft_lower_value(l, node->output), 0);
}

static void scale_backward(weft_lowering *l, const weft_node *node) {
    const int32_t dy = weft_gradient_of(l, node->output);
    int32_t accumulate = 0;
    const int32_t dx = weft_gradient_target_over(l, node->inputs[0], dy, &accumulate);
    if (dx != 0) lower_scale(l, node, dy, dx, accumulate);
}

const weft_operator weft_operator_scale = {.name = "scale",
                                           .inputs = {"x"},
                                           .infer = scale_infer,
                                           .forward = scale_forward,
                                           .backward = scale_backward,
                                           .in_place = 1u << 0,
                                           .any_places = true};

weft_value weft_op_scale(weft_graph *graph, weft_value x, double factor) {
    weft_node node = {.op = &weft_operator_scale, .inputs = {x}, .n_inputs = 1, .factor = factor};
    return weft_record_node(graph, &node);
}
