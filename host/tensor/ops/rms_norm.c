/* host/tensor/ops/rms_norm.c: y = x * rstd * gain per place. x, y: (B,T,D); rstd: (B,T), made for backward alone. */
#include "tensor/gradient.h"
#include "tensor/operators.h"
#include "tensor/weight.h"

static weft_status infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const int64_t width = weft_graph_value(graph, node->inputs[0])->width;
    weft_status status = weft_infer_numbers(graph, node, 0, 0, err);
    if (status == WEFT_OK) status = weft_infer_gain(node, width, err);
    if (status == WEFT_OK && !(node->eps >= 0.0))
        status = weft_error_set(err, WEFT_E_PLUGIN, "eps is %g; it cannot be negative", node->eps);
    node->width = width;
    node->statistic_count = weft_graph_places(graph);
    return status;
}

static weft_rms_norm arguments(const weft_lowering *l, const weft_node *node) {
    const weft_rms_norm args = {.struct_size = (uint32_t)sizeof args,
                                .rows = weft_graph_places(l->graph),
                                .width = node->width,
                                .eps = node->eps,
                                .dtype = l->graph->dtype};
    return args;
}

static void forward(weft_lowering *l, const weft_node *node) {
    const weft_rms_norm args = arguments(l, node);
    weft_lower_begin(l, &weft_kernel_rms_norm, &args, sizeof args);
    WEFT_BIND(l, weft_rms_norm, x, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_rms_norm, gain, weft_weight_values(l, node->weight));
    WEFT_BIND(l, weft_rms_norm, y, weft_lower_value(l, node->output));
    WEFT_BIND(l, weft_rms_norm, rstd, weft_lower_value(l, node->statistic));
    weft_lower_end(l);
}

static void backward(weft_lowering *l, const weft_node *node) {
    weft_rms_norm args = arguments(l, node);
    const int32_t dy = weft_gradient_of(l, node->output);
    const int32_t dgain = weft_weight_gradient(l, node->weight, &args.accumulate_dgain);
    const int32_t dx = weft_gradient_target(l, node->inputs[0], &args.accumulate_dx);
    weft_lower_begin(l, &weft_kernel_rms_norm_backward, &args, sizeof args);
    WEFT_BIND(l, weft_rms_norm, x, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_rms_norm, gain, weft_weight_values(l, node->weight));
    WEFT_BIND(l, weft_rms_norm, rstd, weft_lower_value(l, node->statistic));
    WEFT_BIND(l, weft_rms_norm, dy, dy);
    WEFT_BIND(l, weft_rms_norm, dx, dx);
    WEFT_BIND(l, weft_rms_norm, dgain, dgain);
    weft_lower_end(l);
}

const weft_operator weft_operator_rms_norm = {
    .name = "rms_norm", .inputs = {"x"}, .infer = infer, .forward = forward, .backward = backward};

weft_value weft_op_rms_norm(weft_graph *graph, weft_value x, weft_weight *gain, double eps) {
    weft_node node = {.op = &weft_operator_rms_norm, .inputs = {x}, .n_inputs = 1, .weight = gain, .eps = eps};
    return weft_record_node(graph, &node);
}
