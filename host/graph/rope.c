/* host/graph/rope.c: rotates the heads of x, or the first r elements of each, by position. x, y: (B,T,H*d);
 * positions: (B,T) int32; table: (P,r). */
#include "graph/gradient.h"
#include "graph/operators.h"

/* Returns the number of rotated elements of a head. */
static int64_t rotary_dim(const weft_node *node) {
    return node->rope.rotary_dim != 0 ? node->rope.rotary_dim : node->rope.head_dim;
}

static weft_status rope_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_rope_args *args = &node->rope;
    const int64_t turned = rotary_dim(node);
    weft_status status = WEFT_OK;
    if (args->heads < 1 || turned < 2 || turned % 2 != 0 || turned > args->head_dim)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "%lld heads of %lld elements, of which %lld are rotated; heads are needed, and an even "
                              "number of their elements",
                              (long long)args->heads, (long long)args->head_dim, (long long)turned);
    status = weft_infer_numbers(graph, node, 0, args->heads * args->head_dim, err);
    if (status == WEFT_OK) status = weft_infer_places(graph, node, 1, err);
    if (status != WEFT_OK) return status;
    if (node->table == NULL) return weft_error_set(err, WEFT_E_PLUGIN, "the table is NULL");
    if (node->table->width != turned)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "table %s has %lld numbers per position; heads of which %lld elements are rotated need "
                              "as many",
                              node->table->name, (long long)node->table->width, (long long)turned);
    node->width = args->heads * args->head_dim;
    return WEFT_OK;
}

static void lower_rotation(weft_lowering *l, const weft_node *node, int32_t x, int32_t y, int32_t inverse,
                           int32_t accumulate) {
    const weft_rope args = {.struct_size = (uint32_t)sizeof args,
                            .rows = weft_graph_places(l->graph),
                            .heads = node->rope.heads,
                            .head_dim = node->rope.head_dim,
                            .rotary_dim = rotary_dim(node),
                            .table_rows = weft_graph_positions(l->graph),
                            .inverse = inverse,
                            .accumulate = accumulate,
                            .dtype = l->graph->dtype};
    weft_lower_begin(l, &weft_kernel_rope, &args, sizeof args);
    WEFT_BIND(l, weft_rope, x, x);
    WEFT_BIND(l, weft_rope, positions, weft_lower_value(l, node->inputs[1]));
    WEFT_BIND(l, weft_rope, table, weft_lower_table(l, node->table, weft_graph_positions(l->graph)));
    WEFT_BIND(l, weft_rope, y, y);
    weft_lower_end(l);
}

static void rope_forward(weft_lowering *l, const weft_node *node) {
    lower_rotation(l, node, weft_lower_value(l, node->inputs[0]), weft_lower_value(l, node->output), 0, 0);
}

static void rope_backward(weft_lowering *l, const weft_node *node) {
    const int32_t dy = weft_gradient_of(l, node->output);
    int32_t accumulate = 0;
    const int32_t dx = weft_gradient_target_over(l, node->inputs[0], dy, &accumulate);
    if (dx != 0) lower_rotation(l, node, dy, dx, 1, accumulate);
}

const weft_operator weft_operator_rope = {.name = "rope",
                                          .inputs = {"x", "positions"},
                                          .infer = rope_infer,
                                          .forward = rope_forward,
                                          .backward = rope_backward,
                                          .in_place = 1u << 0};

weft_value weft_op_rope(weft_graph *graph, weft_value x, weft_value positions, weft_table *table,
                        const weft_rope_args *args) {
    weft_node node = {.op = &weft_operator_rope, .inputs = {x, positions}, .n_inputs = 2, .table = table};
    weft_record_arguments(graph, &node, &node.rope, sizeof node.rope, args, WEFT_SIZE_1_0(weft_rope_args));
    return weft_record_node(graph, &node);
}
