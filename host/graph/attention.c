/* host/graph/attention.c: causal attention within each document, with grouped queries and an optional prefix, whose
 * keys every query sees in the same softmax.
 *
 * q, o: (B,T,H*d); k, v: (B,T,Hkv*d); starts: (B,T) int32; lse: (B,H,T), computed only for backward. In generation the
 * kernel first appends keys and values to the state, (B,cache_rows,Hkv,d) each.
 *
 * A separate kernel handles the prefix: it continues from o and lse of the main kernel. Backward requires only the
 * combined o and lse: each kernel computes the gradients of its own keys and its contribution to the queries'
 * gradient. */
#include "graph/adapt.h"
#include "graph/gradient.h"
#include "graph/operators.h"
#include "graph/prefix.h"

enum { Q = 0, K = 1, V = 2, STARTS = 3, PREFIX_K = 4, PREFIX_V = 5 };

static bool has_prefix(const weft_node *node) {
    return node->op == &weft_operator_attention_with_prefix;
}

weft_status weft_infer_heads(const weft_attention_args *args, weft_error *err) {
    if (args->heads >= 1 && args->kv_heads >= 1 && args->head_dim >= 1 && args->heads % args->kv_heads == 0)
        return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN,
                          "%lld query heads over %lld key heads of %lld elements; the first must be a multiple of the "
                          "second",
                          (long long)args->heads, (long long)args->kv_heads, (long long)args->head_dim);
}

static weft_status attention_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_attention_args *args = &node->attention;
    weft_status status = weft_infer_heads(args, err);
    if (status != WEFT_OK) return status;
    if (args->window < 0 || !(args->cap >= 0.0))
        return weft_error_set(err, WEFT_E_PLUGIN, "a window of %lld places and a cap of %g; neither can be negative",
                              (long long)args->window, args->cap);
    status = weft_infer_numbers(graph, node, Q, args->heads * args->head_dim, err);
    if (status == WEFT_OK) status = weft_infer_numbers(graph, node, K, args->kv_heads * args->head_dim, err);
    if (status == WEFT_OK) status = weft_infer_numbers(graph, node, V, args->kv_heads * args->head_dim, err);
    if (status == WEFT_OK) status = weft_infer_places(graph, node, STARTS, err);
    if (status == WEFT_OK && has_prefix(node)) status = weft_prefix_infer(graph, node, PREFIX_K, PREFIX_V, err);
    node->width = args->heads * args->head_dim;
    node->statistic_count = weft_graph_places(graph) * args->heads;
    return status;
}

static weft_attention attention_arguments(const weft_lowering *l, const weft_node *node) {
    const weft_graph_spec *spec = &l->graph->spec;
    const weft_attention args = {.struct_size = (uint32_t)sizeof args,
                                 .batch = spec->rows,
                                 .length = spec->length,
                                 .heads = node->attention.heads,
                                 .kv_heads = node->attention.kv_heads,
                                 .head_dim = node->attention.head_dim,
                                 .scale = node->attention.scale,
                                 .window = node->attention.window,
                                 .cap = node->attention.cap,
                                 .dtype = l->graph->dtype};
    return args;
}

/* Returns the bytes of one sequence's keys (or values) at one position. */
static int64_t state_place_bytes(const weft_graph *graph, const weft_node *node) {
    return node->attention.kv_heads * node->attention.head_dim * weft_dtype_bytes(graph->dtype);
}

/* Returns the bytes of the state's keys, or of its values. */
static int64_t state_half_bytes(const weft_graph *graph, const weft_node *node) {
    return (int64_t)graph->spec.rows * graph->spec.cache_rows * state_place_bytes(graph, node);
}

/* The state's keys and values, to which the kernel appends those of this call. */
typedef struct cache {
    int32_t k, v, new_k, new_v, past; /* storages; 0: absent */
} cache;

static cache cache_of_node(weft_lowering *l, const weft_node *node) {
    const int64_t bytes = state_half_bytes(l->graph, node);
    const cache none = {.k = weft_lower_value(l, node->inputs[K]), .v = weft_lower_value(l, node->inputs[V])};
    cache c = {.new_k = none.k, .new_v = none.v};
    if (l->graph->spec.mode != WEFT_MODE_GENERATE) return none;
    c.k = weft_lower_storage(l, WEFT_HOME_STATE, 0, node->state, bytes);
    c.v = weft_lower_storage(l, WEFT_HOME_STATE, 0, node->state + bytes, bytes);
    c.past = weft_lower_storage(l, WEFT_HOME_PAST, 0, 0, weft_dtype_bytes(WEFT_I64));
    return c;
}

static weft_prefix_inputs prefix_of_node(const weft_node *node) {
    const weft_prefix_inputs inputs = {node->inputs[Q], node->inputs[PREFIX_K], node->inputs[PREFIX_V], true};
    return inputs;
}

/* Returns the storage of lse: on the tape if backward reads it, scratch if only the prefix kernel does, else 0. */
static int32_t lse_storage(weft_lowering *l, const weft_node *node) {
    const int32_t kept = weft_lower_value(l, node->statistic);
    if (kept != 0 || !has_prefix(node)) return kept;
    return weft_lower_work(l, node->statistic_count * weft_dtype_bytes(WEFT_F32));
}

static void attention_forward(weft_lowering *l, const weft_node *node) {
    const cache c = cache_of_node(l, node);
    const weft_prefix_inputs prefix = prefix_of_node(node);
    const int32_t o = weft_lower_value(l, node->output), lse = lse_storage(l, node);
    weft_attention args = attention_arguments(l, node);
    if (c.past != 0) args.cache_rows = l->graph->spec.cache_rows;
    weft_lower_begin(l, &weft_kernel_attention, &args, sizeof args);
    WEFT_BIND(l, weft_attention, q, weft_lower_value(l, node->inputs[Q]));
    WEFT_BIND(l, weft_attention, k, c.k);
    WEFT_BIND(l, weft_attention, v, c.v);
    WEFT_BIND(l, weft_attention, new_k, c.new_k);
    WEFT_BIND(l, weft_attention, new_v, c.new_v);
    WEFT_BIND(l, weft_attention, past, c.past);
    WEFT_BIND(l, weft_attention, starts, weft_lower_value(l, node->inputs[STARTS]));
    WEFT_BIND(l, weft_attention, o, o);
    WEFT_BIND(l, weft_attention, lse, lse);
    weft_lower_end(l);
    if (has_prefix(node)) weft_prefix_forward(l, node, &prefix, o, lse);
}

/* True if any gradient is required. With a prefix, it may be the only trained input. */
static bool wants_any(const weft_lowering *l, const weft_node *node) {
    bool any = false;
    for (int i = Q; i <= V; i++) any |= weft_graph_value(l->graph, node->inputs[i])->wants_gradient;
    return any;
}

static void attention_backward(weft_lowering *l, const weft_node *node) {
    const weft_attention args = attention_arguments(l, node);
    const weft_prefix_inputs prefix = prefix_of_node(node);
    int32_t begun[3];
    if (!wants_any(l, node)) {
        weft_prefix_backward(l, node, &prefix, 0, 0);
        return;
    }
    for (int i = Q; i <= V; i++) begun[i] = weft_gradient_begin_always(l, node->inputs[i]);
    weft_lower_begin(l, &weft_kernel_attention_backward, &args, sizeof args);
    WEFT_BIND(l, weft_attention, q, weft_lower_value(l, node->inputs[Q]));
    WEFT_BIND(l, weft_attention, k, weft_lower_value(l, node->inputs[K]));
    WEFT_BIND(l, weft_attention, v, weft_lower_value(l, node->inputs[V]));
    WEFT_BIND(l, weft_attention, starts, weft_lower_value(l, node->inputs[STARTS]));
    WEFT_BIND(l, weft_attention, o, weft_lower_value(l, node->output));
    WEFT_BIND(l, weft_attention, lse, weft_lower_value(l, node->statistic));
    WEFT_BIND(l, weft_attention, d_o, weft_gradient_of(l, node->output));
    WEFT_BIND(l, weft_attention, dq, begun[Q]);
    WEFT_BIND(l, weft_attention, dk, begun[K]);
    WEFT_BIND(l, weft_attention, dv, begun[V]);
    weft_lower_end(l);
    if (has_prefix(node)) weft_prefix_backward(l, node, &prefix, begun[Q], 1);
    for (int i = Q; i <= V; i++) weft_gradient_end(l, node->inputs[i], begun[i]);
}

const weft_operator weft_operator_attention = {.name = "attention",
                                               .inputs = {"q", "k", "v", "starts"},
                                               .infer = attention_infer,
                                               .forward = attention_forward,
                                               .backward = attention_backward};
const weft_operator weft_operator_attention_with_prefix = {.name = "attention_with_prefix",
                                                           .inputs = {"q", "k", "v", "starts", "prefix_k", "prefix_v"},
                                                           .infer = attention_infer,
                                                           .forward = attention_forward,
                                                           .backward = attention_backward};

/* Records keys and values of this call, and their offset in the state in generation. */
static weft_value record_attention(weft_graph *graph, weft_node *node, const weft_attention_args *args) {
    weft_value output;
    node->state = graph->state_bytes;
    weft_record_arguments(graph, node, &node->attention, sizeof node->attention, args,
                          WEFT_SIZE_1_0(weft_attention_args));
    output = weft_record_node(graph, node);
    if (graph->spec.mode == WEFT_MODE_GENERATE && !graph->failed)
        graph->state_bytes += 2 * state_half_bytes(graph, node);
    return output;
}

weft_value weft_op_attention(weft_graph *graph, weft_value q, weft_value k, weft_value v, weft_value starts,
                             const weft_attention_args *args) {
    weft_node node = {.op = &weft_operator_attention, .inputs = {q, k, v, starts}, .n_inputs = 4};
    const int32_t claim = weft_adapts_attention(graph);
    if (claim != 0) return weft_adapt_attention(graph, claim, q, k, v, starts, args);
    return record_attention(graph, &node, args);
}

/* Returns the table with which rope rotated q, or NULL without rope. The prefix's positions count in this table, and a
 * table that depends on the sequence length is computed for prefix and sequence together. */
static const weft_table *turned_by(const weft_graph *graph, weft_value q) {
    const int32_t node = q.id < (uint32_t)graph->n_values ? weft_graph_value(graph, q)->node : -1;
    return node >= 0 && graph->nodes[node].op == &weft_operator_rope ? graph->nodes[node].table : NULL;
}

weft_value weft_op_attention_with_prefix(weft_graph *graph, weft_value q, weft_value k, weft_value v, weft_value starts,
                                         weft_value prefix_k, weft_value prefix_v, const weft_attention_args *args) {
    weft_node node = {.op = &weft_operator_attention_with_prefix,
                      .inputs = {q, k, v, starts, prefix_k, prefix_v},
                      .n_inputs = 6};
    weft_value output;
    if (!graph->failed && graph->n_values > 0) node.table = turned_by(graph, q);
    output = record_attention(graph, &node, args);
    if (output.id != 0 && node.table != NULL) {
        const int64_t rows = weft_value_places(weft_graph_value(graph, prefix_k)) + weft_graph_positions(graph);
        graph->table_rows = rows > graph->table_rows ? rows : graph->table_rows;
    }
    return output;
}
