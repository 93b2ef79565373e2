/* host/tensor/ops/lm_head.c: the end of a language model. x: (B,T,D), W: (V,D).
 *
 * Training: nothing in forward but that x is kept; backward makes logits, loss and gradients together, in chunks of
 * rows. Evaluation: the loss, in forward. Generation: the logits of each row's last place. */
#include "tensor/gradient.h"
#include "tensor/operators.h"
#include "tensor/weight.h"

static weft_status infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    weft_status status = weft_infer_matrix(node, err);
    if (status == WEFT_OK) status = weft_infer_numbers(graph, node, 0, node->weight->in, err);
    return status;
}

static weft_head arguments(const weft_lowering *l, const weft_node *node) {
    const weft_head args = {.struct_size = (uint32_t)sizeof args,
                            .rows = weft_graph_places(l->graph),
                            .width = node->weight->in,
                            .vocab = node->weight->out,
                            .dtype = l->graph->dtype};
    return args;
}

static void bind(weft_lowering *l, const weft_node *node) {
    WEFT_BIND(l, weft_head, x, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_head, w, weft_weight_values(l, node->weight));
    WEFT_BIND(l, weft_head, targets, weft_lower_leaf(l, WEFT_HOME_TARGETS));
    WEFT_BIND(l, weft_head, weights, weft_lower_leaf(l, WEFT_HOME_WEIGHTS));
    WEFT_BIND(l, weft_head, loss, weft_lower_storage(l, WEFT_HOME_LOSS, 0, 0, weft_dtype_bytes(WEFT_F64)));
}

static void loss(weft_lowering *l, const weft_node *node) {
    const weft_head args = arguments(l, node);
    weft_lower_begin(l, &weft_kernel_head_loss, &args, sizeof args);
    bind(l, node);
    weft_lower_end(l);
}

/* logits (B,V) = x at place T - 1 of each row, times W^T; fp32, whatever x is */
static void last_logits(weft_lowering *l, const weft_node *node) {
    const weft_graph_spec *spec = &l->graph->spec;
    const int64_t bytes = spec->rows * node->weight->out * weft_dtype_bytes(WEFT_F32);
    weft_weight_product(l, node->weight, weft_lower_storage(l, WEFT_HOME_LOGITS, 0, 0, bytes), WEFT_F32,
                        weft_lower_value(l, node->inputs[0]), spec->rows, spec->length * node->weight->in,
                        (spec->length - 1) * node->weight->in);
}

static void forward(weft_lowering *l, const weft_node *node) {
    if (l->graph->spec.mode == WEFT_MODE_EVALUATE) loss(l, node);
    if (l->graph->spec.mode == WEFT_MODE_GENERATE) last_logits(l, node);
}

static void backward(weft_lowering *l, const weft_node *node) {
    weft_head args = arguments(l, node);
    const int32_t dw = weft_weight_gradient(l, node->weight, &args.accumulate_dw);
    const int32_t dx = weft_gradient_begin(l, node->inputs[0]);
    if (dw == 0 && dx == 0) {
        loss(l, node);
        return;
    }
    weft_lower_begin(l, &weft_kernel_head_loss_grad, &args, sizeof args);
    bind(l, node);
    WEFT_BIND(l, weft_head, dx, dx);
    WEFT_BIND(l, weft_head, dw, dw);
    weft_lower_end(l);
    weft_gradient_end(l, node->inputs[0], dx);
}

const weft_operator weft_operator_lm_head = {
    .name = "lm_head", .inputs = {"x"}, .infer = infer, .forward = forward, .backward = backward};

void weft_op_lm_head(weft_graph *graph, weft_value x, weft_weight *weight) {
    weft_node node = {.op = &weft_operator_lm_head, .inputs = {x}, .n_inputs = 1, .weight = weight};
    const int32_t index = graph->n_nodes;
    (void)weft_record_node(graph, &node);
    if (!graph->failed) graph->head = index;
}
