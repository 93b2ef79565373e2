/* host/tensor/ops/embedding.c: rows of a table, chosen by ids. ids: (B,T) int32, y: (B,T,D). */
#include "tensor/gradient.h"
#include "tensor/operators.h"
#include "tensor/weight.h"

static weft_status infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    weft_status status = weft_infer_matrix(node, err);
    if (status == WEFT_OK) status = weft_infer_places(graph, node, 0, err);
    if (status == WEFT_OK) node->width = node->weight->in;
    return status;
}

static weft_embedding arguments(const weft_lowering *l, const weft_node *node) {
    const weft_embedding args = {.struct_size = (uint32_t)sizeof args,
                                 .rows = weft_graph_places(l->graph),
                                 .width = node->weight->in,
                                 .vocab = node->weight->out,
                                 .dtype = l->graph->dtype,
                                 .dtype_table = l->graph->dtype,
                                 .has_padding = node->weight->has_padding,
                                 .padding = node->weight->padding};
    return args;
}

static void forward(weft_lowering *l, const weft_node *node) {
    const weft_embedding args = arguments(l, node);
    weft_lower_begin(l, &weft_kernel_embedding, &args, sizeof args);
    WEFT_BIND(l, weft_embedding, ids, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_embedding, table, weft_weight_values(l, node->weight));
    weft_lower_dtype(l, offsetof(weft_embedding, dtype_table));
    WEFT_BIND(l, weft_embedding, y, weft_lower_value(l, node->output));
    weft_lower_end(l);
}

static void backward(weft_lowering *l, const weft_node *node) {
    weft_embedding args = arguments(l, node);
    const int32_t dtable = weft_weight_gradient(l, node->weight, &args.accumulate);
    if (dtable == 0) return;
    weft_lower_begin(l, &weft_kernel_embedding_backward, &args, sizeof args);
    WEFT_BIND(l, weft_embedding, ids, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_embedding, dy, weft_gradient_of(l, node->output));
    WEFT_BIND(l, weft_embedding, dtable, dtable);
    weft_lower_end(l);
}

const weft_operator weft_operator_embedding = {
    .name = "embedding", .inputs = {"ids"}, .infer = infer, .forward = forward, .backward = backward};

weft_value weft_op_embedding(weft_graph *graph, weft_value ids, weft_weight *table) {
    weft_node node = {.op = &weft_operator_embedding, .inputs = {ids}, .n_inputs = 1, .weight = table};
    return weft_record_node(graph, &node);
}
