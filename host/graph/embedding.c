/* host/graph/embedding.c: rows of a table, chosen by ids or by positions. ids: (B,T) int32, y: (B,T,D). */
#include "graph/adapt.h"
#include "graph/gradient.h"
#include "graph/operators.h"
#include "graph/weight.h"

/* Checks that positions fit in the table. Ids need no check: the data pipeline guarantees that they are below the
 * vocabulary. */
static weft_status check_positions_fit(const weft_graph *graph, const weft_node *node, weft_error *err) {
    const int64_t positions = weft_graph_positions(graph);
    if (weft_graph_value(graph, node->inputs[0])->home != WEFT_HOME_POSITIONS || positions <= node->weight->out)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "the table has %lld rows, and positions go up to %lld",
                          (long long)node->weight->out, (long long)positions - 1);
}

static weft_status embedding_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    weft_status status = weft_infer_dense(graph, node, err);
    if (status == WEFT_OK) status = weft_infer_places(graph, node, 0, err);
    if (status == WEFT_OK) status = check_positions_fit(graph, node, err);
    if (status == WEFT_OK) node->width = node->weight->in;
    return status;
}

static weft_embedding embedding_arguments(const weft_lowering *l, const weft_node *node) {
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

static void embedding_forward(weft_lowering *l, const weft_node *node) {
    const weft_embedding args = embedding_arguments(l, node);
    weft_lower_begin(l, &weft_kernel_embedding, &args, sizeof args);
    WEFT_BIND(l, weft_embedding, ids, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_embedding, table, weft_weight_values(l, node->weight));
    weft_lower_dtype(l, offsetof(weft_embedding, dtype_table));
    WEFT_BIND(l, weft_embedding, y, weft_lower_value(l, node->output));
    weft_lower_end(l);
}

static void embedding_backward(weft_lowering *l, const weft_node *node) {
    weft_embedding args = embedding_arguments(l, node);
    const int32_t dtable = weft_weight_gradient(l, node->weight, &args.accumulate);
    if (dtable == 0) return;
    weft_lower_begin(l, &weft_kernel_embedding_backward, &args, sizeof args);
    WEFT_BIND(l, weft_embedding, ids, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_embedding, dy, weft_gradient_of(l, node->output));
    WEFT_BIND(l, weft_embedding, dtable, dtable);
    weft_lower_end(l);
}

const weft_operator weft_operator_embedding = {.name = "embedding",
                                               .inputs = {"ids"},
                                               .infer = embedding_infer,
                                               .forward = embedding_forward,
                                               .backward = embedding_backward};

weft_value weft_op_embedding(weft_graph *graph, weft_value ids, weft_weight *table) {
    weft_node node = {.op = &weft_operator_embedding, .inputs = {ids}, .n_inputs = 1, .weight = table};
    return weft_adapts(graph, table) ? weft_adapt_embedding(graph, ids, table) : weft_record_node(graph, &node);
}
