/* host/tensor/ops/swiglu.c: y = silu(gate) * up. All (B,T,F). */
#include "tensor/gradient.h"
#include "tensor/operators.h"

static weft_swiglu arguments(const weft_lowering *l, const weft_node *node) {
    const weft_swiglu args = {.struct_size = (uint32_t)sizeof args,
                              .n = weft_graph_places(l->graph) * node->width,
                              .dtype = l->graph->dtype};
    return args;
}

static void forward(weft_lowering *l, const weft_node *node) {
    const weft_swiglu args = arguments(l, node);
    weft_lower_begin(l, &weft_kernel_swiglu, &args, sizeof args);
    WEFT_BIND(l, weft_swiglu, gate, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_swiglu, up, weft_lower_value(l, node->inputs[1]));
    WEFT_BIND(l, weft_swiglu, y, weft_lower_value(l, node->output));
    weft_lower_end(l);
}

/* A gate that is its own `up` gets two contributions from one call: the second one apart. */
static void backward(weft_lowering *l, const weft_node *node) {
    weft_swiglu args = arguments(l, node);
    const weft_value gate = node->inputs[0], up = node->inputs[1];
    const int32_t dy = weft_gradient_of(l, node->output);
    const int32_t dgate = weft_gradient_target(l, gate, &args.accumulate_dgate);
    const int32_t dup = gate.id == up.id ? weft_gradient_begin(l, up)
                                         : weft_gradient_target(l, up, &args.accumulate_dup);
    weft_lower_begin(l, &weft_kernel_swiglu_backward, &args, sizeof args);
    WEFT_BIND(l, weft_swiglu, gate, weft_lower_value(l, gate));
    WEFT_BIND(l, weft_swiglu, up, weft_lower_value(l, up));
    WEFT_BIND(l, weft_swiglu, dy, dy);
    WEFT_BIND(l, weft_swiglu, dgate, dgate);
    WEFT_BIND(l, weft_swiglu, dup, dup);
    weft_lower_end(l);
    if (gate.id == up.id) weft_gradient_end(l, up, dup);
}

const weft_operator weft_operator_swiglu = {
    .name = "swiglu", .inputs = {"gate", "up"}, .infer = weft_infer_alike, .forward = forward, .backward = backward};

weft_value weft_op_swiglu(weft_graph *graph, weft_value gate, weft_value up) {
    weft_node node = {.op = &weft_operator_swiglu, .inputs = {gate, up}, .n_inputs = 2};
    return weft_record_node(graph, &node);
}
