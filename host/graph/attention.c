/* host/graph/attention.c: causal attention within each document, with grouped queries and an optional prefix, whose
 * keys every query sees in the same softmax.
 *
 * q, o: (B,T,H*d); k, v: (B,T,Hkv*d); starts: (B,T) int32; lse: (B,H,T), computed only for backward. In generation the
 * kernel first appends keys and values to the state, (B,cache_rows,Hkv,d) each.
 *
 * A separate kernel handles the prefix: it continues from o and lse of the main kernel. Backward requires only the
 * combined o and lse: each kernel computes the gradients of its own keys and its contribution to the queries'
 * gradient. */
#include "graph/record.h"

/* ---- the prefix kernel, used by both operators with a prefix ----
 *
 * q, o: (B,T,H*d); keys and values: (P,Hkv*d); lse: (B,H,T), computed only for backward. */

enum { Q = 0, K = 1, V = 2, STARTS = 3 };

static bool has_prefix(const weft_node *node) {
    return node->op != &weft_operator_attention;
}

/* False for attention over only the prefix. */
static bool has_sequence(const weft_node *node) {
    return node->op != &weft_operator_prefix_attention;
}

/* Returns the index of the prefix's keys among the inputs; its values follow. */
static int32_t prefix_k(const weft_node *node) {
    return node->n_inputs - 2;
}

/* Checks that keys and values have the same number of positions and the head shape of the node's attention. */
static weft_status prefix_infer(const weft_graph *graph, const weft_node *node, weft_error *err) {
    const weft_attention_args *args = &node->attention;
    const int32_t k = prefix_k(node);
    const int64_t width = args->kv_heads * args->head_dim;
    const int64_t keys = weft_value_places(weft_graph_value(graph, node->inputs[k]));
    weft_status status = WEFT_OK;
    if (args->cap > 0.0 || (args->window > 0 && has_sequence(node)))
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "this model's attention %s, which prefixes do not support: use another model or adapter",
                              args->cap > 0.0 ? "caps its scores" : "has a window");
    status = weft_infer_shape(graph, node, k, width, keys, err);
    return status == WEFT_OK ? weft_infer_shape(graph, node, k + 1, width, keys, err) : status;
}

static weft_prefix prefix_arguments(const weft_lowering *l, const weft_node *node) {
    const weft_graph_spec *spec = &l->graph->spec;
    return (weft_prefix){.batch = spec->rows,
                         .length = spec->length,
                         .heads = node->attention.heads,
                         .kv_heads = node->attention.kv_heads,
                         .head_dim = node->attention.head_dim,
                         .places = weft_value_places(weft_graph_value(l->graph, node->inputs[prefix_k(node)])),
                         .rotary_dim = node->table == NULL ? 0 : node->table->width,
                         .scale = node->attention.scale,
                         .dtype = l->graph->dtype,
                         .join = has_sequence(node)};
}

/* The rotation by the prefix's length, which shifts the positions of the queries. */
static weft_operand turn_of(weft_lowering *l, const weft_node *node, int64_t places) {
    const int64_t row = node->table == NULL ? 0 : node->table->width * weft_dtype_bytes(WEFT_F32);
    return (weft_operand){"turn", node->table == NULL ? 0 : weft_lower_table(l, node->table, places + 1),
                          offsetof(weft_prefix, turn), places * row, row};
}

/* lse 0: not stored. */
static void prefix_forward(weft_lowering *l, const weft_node *node, int32_t o, int32_t lse) {
    const weft_prefix args = prefix_arguments(l, node);
    WEFT_CALL(l, &weft_kernel_prefix, args, WEFT_AT(q, weft_lower_value(l, node->inputs[Q])),
              WEFT_AT(k, weft_lower_value(l, node->inputs[prefix_k(node)])),
              WEFT_AT(v, weft_lower_value(l, node->inputs[prefix_k(node) + 1])), turn_of(l, node, args.places),
              WEFT_AT(o, o), WEFT_AT(lse, lse));
}

/* dq: storage for the gradient of q; 0: not computed. The kernel reads the node's output and statistic from forward. */
static void prefix_backward(weft_lowering *l, const weft_node *node, int32_t dq, int32_t accumulate_dq) {
    weft_prefix args = prefix_arguments(l, node);
    const weft_value keys = node->inputs[prefix_k(node)], values = node->inputs[prefix_k(node) + 1];
    const int32_t dk = weft_gradient_begin_always(l, keys), dv = weft_gradient_begin_always(l, values);
    args.accumulate_dq = accumulate_dq;
    WEFT_CALL(l, &weft_kernel_prefix_backward, args, WEFT_AT(q, weft_lower_value(l, node->inputs[Q])),
              WEFT_AT(k, weft_lower_value(l, node->inputs[prefix_k(node)])),
              WEFT_AT(v, weft_lower_value(l, node->inputs[prefix_k(node) + 1])), turn_of(l, node, args.places),
              WEFT_AT(o, weft_lower_value(l, node->output)), WEFT_AT(lse, weft_lower_value(l, node->statistic)),
              WEFT_AT(d_o, weft_gradient_of(l, node->output)), WEFT_AT(dq, dq), WEFT_AT(dk, dk), WEFT_AT(dv, dv));
    weft_gradient_end(l, keys, dk);
    weft_gradient_end(l, values, dv);
}

/* ---- rope: rotates the heads of x, or the first r elements of each, by position ----
 *
 * x, y: (B,T,H*d); positions: (B,T) int32; table: (P,r). */

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

static void rope_apply(weft_lowering *l, const weft_node *node, int32_t x, int32_t y, int32_t accumulate,
                       bool backward) {
    const weft_rope args = {.rows = weft_graph_places(l->graph),
                            .heads = node->rope.heads,
                            .head_dim = node->rope.head_dim,
                            .rotary_dim = rotary_dim(node),
                            .table_rows = weft_graph_positions(l->graph),
                            .inverse = backward,
                            .accumulate = accumulate,
                            .dtype = l->graph->dtype};
    WEFT_CALL(l, &weft_kernel_rope, args, WEFT_AT(x, x), WEFT_AT(positions, weft_lower_value(l, node->inputs[1])),
              WEFT_AT(table, weft_lower_table(l, node->table, weft_graph_positions(l->graph))), WEFT_AT(y, y));
}

const weft_operator weft_operator_rope = {
    .name = "rope", .inputs = {"x", "positions"}, .infer = rope_infer, WEFT_LINEAR(rope), .in_place = 1u << 0};

/* ---- attention ---- */

static weft_status attention_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_attention_args *args = &node->attention;
    weft_status status = WEFT_OK;
    if (args->heads < 1 || args->kv_heads < 1 || args->head_dim < 1 || args->heads % args->kv_heads != 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "%lld query heads over %lld key heads of %lld elements; the first must be a multiple of "
                              "the second",
                              (long long)args->heads, (long long)args->kv_heads, (long long)args->head_dim);
    if (has_sequence(node) && (args->window < 0 || !(args->cap >= 0.0)))
        return weft_error_set(err, WEFT_E_PLUGIN, "a window of %lld positions and a cap of %g; neither can be negative",
                              (long long)args->window, args->cap);
    status = weft_infer_numbers(graph, node, Q, args->heads * args->head_dim, err);
    for (int i = K; i <= V && status == WEFT_OK && has_sequence(node); i++)
        status = weft_infer_numbers(graph, node, i, args->kv_heads * args->head_dim, err);
    if (status == WEFT_OK && has_sequence(node)) status = weft_infer_places(graph, node, STARTS, err);
    if (status == WEFT_OK && has_prefix(node)) status = prefix_infer(graph, node, err);
    node->width = args->heads * args->head_dim;
    node->statistic_count = weft_graph_places(graph) * args->heads;
    return status;
}

static weft_attention attention_arguments(const weft_lowering *l, const weft_node *node) {
    const weft_graph_spec *spec = &l->graph->spec;
    return (weft_attention){.batch = spec->rows,
                            .length = spec->length,
                            .heads = node->attention.heads,
                            .kv_heads = node->attention.kv_heads,
                            .head_dim = node->attention.head_dim,
                            .scale = node->attention.scale,
                            .window = node->attention.window,
                            .cap = node->attention.cap,
                            .dtype = l->graph->dtype};
}

int64_t weft_attention_state_bytes(const weft_graph *graph, const weft_node *node) {
    return (int64_t)graph->spec.rows * graph->spec.cache_rows * node->attention.kv_heads * node->attention.head_dim *
           weft_dtype_bytes(graph->dtype);
}

/* In generation, the kernel appends the keys and values of this call to those of the state. If only the prefix kernel
 * reads lse, it is in scratch. */
static void attention_forward(weft_lowering *l, const weft_node *node) {
    weft_attention args = attention_arguments(l, node);
    const int64_t bytes = weft_attention_state_bytes(l->graph, node);
    const int32_t o = weft_lower_value(l, node->output);
    int32_t lse = weft_lower_value(l, node->statistic);
    int32_t k = weft_lower_value(l, node->inputs[K]), v = weft_lower_value(l, node->inputs[V]);
    int32_t new_k = 0, new_v = 0, past = 0;
    if (!has_sequence(node)) {
        prefix_forward(l, node, o, lse);
        return;
    }
    if (l->graph->spec.mode == WEFT_MODE_GENERATE) {
        args.cache_rows = l->graph->spec.cache_rows;
        new_k = k;
        new_v = v;
        k = weft_lower_storage(l, WEFT_HOME_STATE, 0, node->state, bytes);
        v = weft_lower_storage(l, WEFT_HOME_STATE, 0, node->state + bytes, bytes);
        past = weft_lower_storage(l, WEFT_HOME_PAST, 0, 0, weft_dtype_bytes(WEFT_I64));
    }
    if (lse == 0 && has_prefix(node)) lse = weft_lower_work(l, node->statistic_count * weft_dtype_bytes(WEFT_F32));
    WEFT_CALL(l, &weft_kernel_attention, args, WEFT_AT(q, weft_lower_value(l, node->inputs[Q])), WEFT_AT(k, k),
              WEFT_AT(v, v), WEFT_AT(new_k, new_k), WEFT_AT(new_v, new_v), WEFT_AT(past, past),
              WEFT_AT(starts, weft_lower_value(l, node->inputs[STARTS])), WEFT_AT(o, o), WEFT_AT(lse, lse));
    if (has_prefix(node)) prefix_forward(l, node, o, lse);
}

static void attention_backward(weft_lowering *l, const weft_node *node) {
    const weft_attention args = attention_arguments(l, node);
    int32_t begun[3], accumulate = 0;
    bool any = false; /* with a prefix, it may be the only trained input */
    for (int i = Q; i <= V; i++) any |= weft_graph_value(l->graph, node->inputs[i])->wants_gradient;
    if (!has_sequence(node) || !any) {
        const int32_t dq = weft_gradient_target(l, node->inputs[Q], &accumulate);
        prefix_backward(l, node, dq, accumulate);
        return;
    }
    for (int i = Q; i <= V; i++) begun[i] = weft_gradient_begin_always(l, node->inputs[i]);
    WEFT_CALL(l, &weft_kernel_attention_backward, args, WEFT_AT(q, weft_lower_value(l, node->inputs[Q])),
              WEFT_AT(k, weft_lower_value(l, node->inputs[K])), WEFT_AT(v, weft_lower_value(l, node->inputs[V])),
              WEFT_AT(starts, weft_lower_value(l, node->inputs[STARTS])), WEFT_AT(o, weft_lower_value(l, node->output)),
              WEFT_AT(lse, weft_lower_value(l, node->statistic)), WEFT_AT(d_o, weft_gradient_of(l, node->output)),
              WEFT_AT(dq, begun[Q]), WEFT_AT(dk, begun[K]), WEFT_AT(dv, begun[V]));
    if (has_prefix(node)) prefix_backward(l, node, begun[Q], 1);
    for (int i = Q; i <= V; i++) weft_gradient_end(l, node->inputs[i], begun[i]);
}

const weft_operator weft_operator_attention = {.name = "attention",
                                               .inputs = {"q", "k", "v", "starts"},
                                               WEFT_OPERATOR(attention)};
const weft_operator weft_operator_attention_with_prefix = {.name = "attention_with_prefix",
                                                           .inputs = {"q", "k", "v", "starts", "prefix_k", "prefix_v"},
                                                           WEFT_OPERATOR(attention)};
const weft_operator weft_operator_prefix_attention = {.name = "prefix_attention",
                                                      .inputs = {"q", "prefix_k", "prefix_v"},
                                                      WEFT_OPERATOR(attention)};
