/* host/graph/activation.c: y = f(x), and gated y = f(gate) * up. All (B,T,F). */
#include "graph/gradient.h"
#include "graph/operators.h"

static weft_status activation_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const int64_t width = weft_graph_value(graph, node->inputs[0])->width;
    weft_status status = weft_infer_numbers(graph, node, 0, 0, err);
    if (status == WEFT_OK && node->n_inputs == 2) status = weft_infer_numbers(graph, node, 1, width, err);
    if (status == WEFT_OK && (node->form < WEFT_SILU || node->form > WEFT_GELU_TANH))
        status = weft_error_set(err, WEFT_E_PLUGIN, "form %d is not one of weft_activation_form, which are %d to %d",
                                node->form, WEFT_SILU, WEFT_GELU_TANH);
    node->width = width;
    return status;
}

static weft_activation activation_arguments(const weft_lowering *l, const weft_node *node) {
    const weft_activation args = {.struct_size = (uint32_t)sizeof args,
                                  .n = weft_node_places(l->graph, node) * node->width,
                                  .form = node->form,
                                  .dtype = l->graph->dtype};
    return args;
}

/* Binds x, and `up` if the activation is gated. */
static void activation_bind_inputs(weft_lowering *l, const weft_node *node) {
    WEFT_BIND(l, weft_activation, x, weft_lower_value(l, node->inputs[0]));
    if (node->n_inputs == 2) WEFT_BIND(l, weft_activation, up, weft_lower_value(l, node->inputs[1]));
}

static void activation_forward(weft_lowering *l, const weft_node *node) {
    const weft_activation args = activation_arguments(l, node);
    weft_lower_begin(l, &weft_kernel_activation, &args, sizeof args);
    activation_bind_inputs(l, node);
    WEFT_BIND(l, weft_activation, y, weft_lower_value(l, node->output));
    weft_lower_end(l);
}

/* If gate and up are the same value, one call makes two contributions; the second one uses separate storage. */
static void activation_backward(weft_lowering *l, const weft_node *node) {
    weft_activation args = activation_arguments(l, node);
    const weft_value gate = node->inputs[0], up = node->inputs[1];
    const bool gated = node->n_inputs == 2, twice = gated && gate.id == up.id;
    const int32_t dy = weft_gradient_of(l, node->output);
    const int32_t dx = weft_gradient_target(l, gate, &args.accumulate_dx);
    const int32_t dup = twice   ? weft_gradient_begin(l, up)
                        : gated ? weft_gradient_target(l, up, &args.accumulate_dup)
                                : 0;
    weft_lower_begin(l, &weft_kernel_activation_backward, &args, sizeof args);
    activation_bind_inputs(l, node);
    WEFT_BIND(l, weft_activation, dy, dy);
    WEFT_BIND(l, weft_activation, dx, dx);
    WEFT_BIND(l, weft_activation, dup, dup);
    weft_lower_end(l);
    if (twice) weft_gradient_end(l, up, dup);
}

const weft_operator weft_operator_activation = {.name = "activation",
                                                .inputs = {"x"},
                                                .infer = activation_infer,
                                                .forward = activation_forward,
                                                .backward = activation_backward,
                                                .any_places = true};
const weft_operator weft_operator_swiglu = {.name = "swiglu",
                                            .inputs = {"gate", "up"},
                                            .infer = activation_infer,
                                            .forward = activation_forward,
                                            .backward = activation_backward,
                                            .any_places = true};
const weft_operator weft_operator_geglu = {.name = "geglu",
                                           .inputs = {"gate", "up"},
                                           .infer = activation_infer,
                                           .forward = activation_forward,
                                           .backward = activation_backward,
                                           .any_places = true};

weft_value weft_op_activation(weft_graph *graph, weft_value x, int32_t form) {
    weft_node node = {.op = &weft_operator_activation, .inputs = {x}, .n_inputs = 1, .form = form};
    return weft_record_node(graph, &node);
}

weft_value weft_op_gated(weft_graph *graph, weft_value gate, weft_value up, int32_t form) {
    weft_node node = {.op = form == WEFT_SILU ? &weft_operator_swiglu : &weft_operator_geglu,
                      .inputs = {gate, up},
                      .n_inputs = 2,
                      .form = form};
    return weft_record_node(graph, &node);
}

weft_value weft_op_swiglu(weft_graph *graph, weft_value gate, weft_value up) {
    return weft_op_gated(graph, gate, up, WEFT_SILU);
}
