/* host/tensor/ops/attention.c: causal attention inside each document, with grouped queries.
 *
 * q, o: (B,T,H*d); k, v: (B,T,Hkv*d); starts: (B,T) int32; lse: (B,H,T), made for backward alone. In generation the
 * kernel first puts keys and values into the state, (B,cache_rows,Hkv,d) each, behind the places that it holds. */
#include "tensor/adapt.h"
#include "tensor/gradient.h"
#include "tensor/operators.h"

enum { Q = 0, K = 1, V = 2, STARTS = 3 };

static weft_status attention_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_attention_args *args = &node->attention;
    weft_status status = WEFT_OK;
    if (args->heads < 1 || args->kv_heads < 1 || args->head_dim < 1 || args->heads % args->kv_heads != 0)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "%lld query heads over %lld key heads of %lld elements; the first must be a "
                              "multiple of the second",
                              (long long)args->heads, (long long)args->kv_heads, (long long)args->head_dim);
    if (args->window < 0 || !(args->cap >= 0.0))
        return weft_error_set(err, WEFT_E_PLUGIN, "a window of %lld places and a cap of %g; neither can be negative",
                              (long long)args->window, args->cap);
    status = weft_infer_numbers(graph, node, Q, args->heads * args->head_dim, err);
    if (status == WEFT_OK) status = weft_infer_numbers(graph, node, K, args->kv_heads * args->head_dim, err);
    if (status == WEFT_OK) status = weft_infer_numbers(graph, node, V, args->kv_heads * args->head_dim, err);
    if (status == WEFT_OK) status = weft_infer_places(graph, node, STARTS, err);
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

/* Bytes of one row's keys, or values, at one place. */
static int64_t state_place_bytes(const weft_graph *graph, const weft_node *node) {
    return node->attention.kv_heads * node->attention.head_dim * weft_dtype_bytes(graph->dtype);
}

/* The state's keys, or values. */
static int64_t state_half_bytes(const weft_graph *graph, const weft_node *node) {
    return (int64_t)graph->spec.rows * graph->spec.cache_rows * state_place_bytes(graph, node);
}

/* The state's keys and values, to which the kernel adds those of this call. */
typedef struct cache {
    int32_t k, v, new_k, new_v, past; /* storages; 0: none */
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

static void attention_forward(weft_lowering *l, const weft_node *node) {
    const cache c = cache_of_node(l, node);
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
    WEFT_BIND(l, weft_attention, o, weft_lower_value(l, node->output));
    WEFT_BIND(l, weft_attention, lse, weft_lower_value(l, node->statistic));
    weft_lower_end(l);
}

/* The kernel makes all three gradients or none: one that nobody wants goes to scratch. */
static int32_t begin_gradient_or_scratch(weft_lowering *l, weft_value value) {
    const int32_t begun = weft_gradient_begin(l, value);
    return begun != 0 ? begun : weft_lower_work(l, weft_value_bytes(weft_graph_value(l->graph, value)));
}

static void end_gradient_if_wanted(weft_lowering *l, weft_value value, int32_t begun) {
    if (weft_graph_value(l->graph, value)->wants_gradient) weft_gradient_end(l, value, begun);
}

static void attention_backward(weft_lowering *l, const weft_node *node) {
    const weft_attention args = attention_arguments(l, node);
    const int32_t d_o = weft_gradient_of(l, node->output);
    int32_t begun[3];
    for (int i = Q; i <= V; i++) begun[i] = begin_gradient_or_scratch(l, node->inputs[i]);
    weft_lower_begin(l, &weft_kernel_attention_backward, &args, sizeof args);
    WEFT_BIND(l, weft_attention, q, weft_lower_value(l, node->inputs[Q]));
    WEFT_BIND(l, weft_attention, k, weft_lower_value(l, node->inputs[K]));
    WEFT_BIND(l, weft_attention, v, weft_lower_value(l, node->inputs[V]));
    WEFT_BIND(l, weft_attention, starts, weft_lower_value(l, node->inputs[STARTS]));
    WEFT_BIND(l, weft_attention, o, weft_lower_value(l, node->output));
    WEFT_BIND(l, weft_attention, lse, weft_lower_value(l, node->statistic));
    WEFT_BIND(l, weft_attention, d_o, d_o);
    WEFT_BIND(l, weft_attention, dq, begun[Q]);
    WEFT_BIND(l, weft_attention, dk, begun[K]);
    WEFT_BIND(l, weft_attention, dv, begun[V]);
    weft_lower_end(l);
    for (int i = Q; i <= V; i++) end_gradient_if_wanted(l, node->inputs[i], begun[i]);
}

const weft_operator weft_operator_attention = {.name = "attention",
                                               .inputs = {"q", "k", "v", "starts"},
                                               .infer = attention_infer,
                                               .forward = attention_forward,
                                               .backward = attention_backward};

weft_value weft_op_attention(weft_graph *graph, weft_value q, weft_value k, weft_value v, weft_value starts,
                             const weft_attention_args *args) {
    weft_node node = {
        .op = &weft_operator_attention, .inputs = {q, k, v, starts}, .n_inputs = 4, .state = graph->state_bytes};
    const int32_t claim = weft_adapts_attention(graph);
    weft_value output;
    if (claim != 0) return weft_adapt_attention(graph, claim, q, k, v, starts, args);
    weft_record_arguments(graph, &node, &node.attention, sizeof node.attention, args,
                          WEFT_SIZE_1_0(weft_attention_args));
    output = weft_record_node(graph, &node);
    if (graph->spec.mode == WEFT_MODE_GENERATE && !graph->failed)
        graph->state_bytes += 2 * state_half_bytes(graph, &node);
    return output;
}
