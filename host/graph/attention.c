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
#include "graph/record.h"

/* ---- the prefix kernel, used by both operators with a prefix ----
 *
 * q, o: (B,T,H*d); keys and values: (P,Hkv*d); lse: (B,H,T), computed only for backward. */

/* The node's inputs that belong to the prefix. */
typedef struct prefix_inputs {
    weft_value q, k, v;
    bool join; /* the kernel continues from the given o and lse */
} prefix_inputs;

enum { Q = 0, K = 1, V = 2 };

static weft_status infer_keys(const weft_graph *graph, const weft_node *node, int32_t i, weft_error *err) {
    const weft_value_record *value = weft_graph_value(graph, node->inputs[i]);
    const int64_t width = node->attention.kv_heads * node->attention.head_dim;
    if (value->dtype == graph->dtype && value->width == width) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "`%s` is %lld %s a place; %lld %s are needed", node->op->inputs[i],
                          (long long)value->width, weft_dtype_name(value->dtype), (long long)width,
                          weft_dtype_name(graph->dtype));
}

/* Checks that keys and values have the same number of positions and the head shape of the node's attention. */
static weft_status prefix_infer(const weft_graph *graph, const weft_node *node, int32_t k, int32_t v, weft_error *err) {
    const weft_attention_args *args = &node->attention;
    const int64_t keys = weft_value_places(weft_graph_value(graph, node->inputs[k]));
    const int64_t values = weft_value_places(weft_graph_value(graph, node->inputs[v]));
    weft_status status = WEFT_OK;
    if (args->cap > 0.0 || (args->window > 0 && node->op == &weft_operator_attention_with_prefix))
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "this model's attention %s, which prefixes do not support: use another model or adapter",
                              args->cap > 0.0 ? "caps its scores" : "has a window");
    status = infer_keys(graph, node, k, err);
    if (status == WEFT_OK) status = infer_keys(graph, node, v, err);
    if (status == WEFT_OK && keys != values)
        status = weft_error_set(err, WEFT_E_PLUGIN,
                                "a prefix of %lld keys and %lld values; their numbers must be equal", (long long)keys,
                                (long long)values);
    return status;
}

static weft_prefix prefix_arguments(const weft_lowering *l, const weft_node *node, const prefix_inputs *inputs) {
    const weft_graph_spec *spec = &l->graph->spec;
    return (weft_prefix){.struct_size = (uint32_t)sizeof(weft_prefix),
                         .batch = spec->rows,
                         .length = spec->length,
                         .heads = node->attention.heads,
                         .kv_heads = node->attention.kv_heads,
                         .head_dim = node->attention.head_dim,
                         .places = weft_value_places(weft_graph_value(l->graph, inputs->k)),
                         .rotary_dim = node->table == NULL ? 0 : node->table->width,
                         .scale = node->attention.scale,
                         .dtype = l->graph->dtype,
                         .join = inputs->join};
}

/* Binds the operands of both directions. The prefix's length shifts the positions of the queries. */
static void bind_prefix(weft_lowering *l, const weft_node *node, const prefix_inputs *inputs, int64_t places) {
    WEFT_BIND(l, weft_prefix, q, weft_lower_value(l, inputs->q));
    WEFT_BIND(l, weft_prefix, k, weft_lower_value(l, inputs->k));
    WEFT_BIND(l, weft_prefix, v, weft_lower_value(l, inputs->v));
    if (node->table != NULL) {
        const int64_t row = node->table->width * weft_dtype_bytes(WEFT_F32);
        weft_lower_bind_part(l, "turn", offsetof(weft_prefix, turn), weft_lower_table(l, node->table, places + 1),
                             places * row, row);
    }
}

/* lse 0: not stored. */
static void prefix_forward(weft_lowering *l, const weft_node *node, const prefix_inputs *inputs, int32_t o,
                           int32_t lse) {
    const weft_prefix args = prefix_arguments(l, node, inputs);
    weft_lower_begin(l, &weft_kernel_prefix, &args, sizeof args);
    bind_prefix(l, node, inputs, args.places);
    WEFT_BIND(l, weft_prefix, o, o);
    WEFT_BIND(l, weft_prefix, lse, lse);
    weft_lower_end(l);
}

/* dq: storage for the gradient of q; 0: not computed. The kernel reads the node's output and statistic from forward. */
static void prefix_backward(weft_lowering *l, const weft_node *node, const prefix_inputs *inputs, int32_t dq,
                            int32_t accumulate_dq) {
    weft_prefix args = prefix_arguments(l, node, inputs);
    const int32_t dk = weft_gradient_begin_always(l, inputs->k), dv = weft_gradient_begin_always(l, inputs->v);
    args.accumulate_dq = accumulate_dq;
    weft_lower_begin(l, &weft_kernel_prefix_backward, &args, sizeof args);
    bind_prefix(l, node, inputs, args.places);
    WEFT_BIND(l, weft_prefix, o, weft_lower_value(l, node->output));
    WEFT_BIND(l, weft_prefix, lse, weft_lower_value(l, node->statistic));
    WEFT_BIND(l, weft_prefix, d_o, weft_gradient_of(l, node->output));
    WEFT_BIND(l, weft_prefix, dq, dq);
    WEFT_BIND(l, weft_prefix, dk, dk);
    WEFT_BIND(l, weft_prefix, dv, dv);
    weft_lower_end(l);
    weft_gradient_end(l, inputs->k, dk);
    weft_gradient_end(l, inputs->v, dv);
}

/* ---- attention over only the prefix ---- */

static weft_status prefix_attention_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_attention_args *args = &node->attention;
    weft_status status = weft_infer_heads(args, err);
    if (status == WEFT_OK) status = weft_infer_numbers(graph, node, Q, args->heads * args->head_dim, err);
    if (status == WEFT_OK) status = prefix_infer(graph, node, K, V, err);
    node->width = args->heads * args->head_dim;
    node->statistic_count = weft_graph_places(graph) * args->heads;
    return status;
}

static prefix_inputs inputs_of(const weft_node *node) {
    return (prefix_inputs){node->inputs[Q], node->inputs[K], node->inputs[V], false};
}

static void prefix_attention_forward(weft_lowering *l, const weft_node *node) {
    const prefix_inputs inputs = inputs_of(node);
    prefix_forward(l, node, &inputs, weft_lower_value(l, node->output), weft_lower_value(l, node->statistic));
}

static void prefix_attention_backward(weft_lowering *l, const weft_node *node) {
    const prefix_inputs inputs = inputs_of(node);
    int32_t accumulate = 0;
    const int32_t dq = weft_gradient_target(l, node->inputs[Q], &accumulate);
    prefix_backward(l, node, &inputs, dq, accumulate);
}

const weft_operator weft_operator_prefix_attention = {.name = "prefix_attention",
                                                      .inputs = {"q", "prefix_k", "prefix_v"},
                                                      WEFT_OPERATOR(prefix_attention)};

weft_value weft_op_prefix_attention(weft_graph *graph, weft_value q, weft_value prefix_k, weft_value prefix_v,
                                    const weft_attention_args *args) {
    weft_node node = {.op = &weft_operator_prefix_attention, .inputs = {q, prefix_k, prefix_v}, .n_inputs = 3};
    weft_record_arguments(graph, &node, &node.attention, sizeof node.attention, args,
                          WEFT_SIZE_1_0(weft_attention_args));
    return weft_record_node(graph, &node);
}

/* ---- rope: rotates the heads of x, or the first r elements of each, by position ----
 * x, y: (B,T,H*d);
 * positions: (B,T) int32; table: (P,r). */

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

const weft_operator weft_operator_rope = {
    .name = "rope", .inputs = {"x", "positions"}, WEFT_OPERATOR(rope), .in_place = 1u << 0};

weft_value weft_op_rope(weft_graph *graph, weft_value x, weft_value positions, weft_table *table,
                        const weft_rope_args *args) {
    weft_node node = {.op = &weft_operator_rope, .inputs = {x, positions}, .n_inputs = 2, .table = table};
    weft_record_arguments(graph, &node, &node.rope, sizeof node.rope, args, WEFT_SIZE_1_0(weft_rope_args));
    return weft_record_node(graph, &node);
}

/* ---- attention over the sequence ---- */

enum { STARTS = 3, PREFIX_K = 4, PREFIX_V = 5 };

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
    if (status == WEFT_OK && has_prefix(node)) status = prefix_infer(graph, node, PREFIX_K, PREFIX_V, err);
    node->width = args->heads * args->head_dim;
    node->statistic_count = weft_graph_places(graph) * args->heads;
    return status;
}

static weft_attention attention_arguments(const weft_lowering *l, const weft_node *node) {
    const weft_graph_spec *spec = &l->graph->spec;
    return (weft_attention){.struct_size = (uint32_t)sizeof(weft_attention),
                            .batch = spec->rows,
                            .length = spec->length,
                            .heads = node->attention.heads,
                            .kv_heads = node->attention.kv_heads,
                            .head_dim = node->attention.head_dim,
                            .scale = node->attention.scale,
                            .window = node->attention.window,
                            .cap = node->attention.cap,
                            .dtype = l->graph->dtype};
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

static prefix_inputs prefix_of_node(const weft_node *node) {
    return (prefix_inputs){node->inputs[Q], node->inputs[PREFIX_K], node->inputs[PREFIX_V], true};
}

/* Returns the storage of lse: on the tape if backward reads it, scratch if only the prefix kernel does, else 0. */
static int32_t lse_storage(weft_lowering *l, const weft_node *node) {
    const int32_t kept = weft_lower_value(l, node->statistic);
    if (kept != 0 || !has_prefix(node)) return kept;
    return weft_lower_work(l, node->statistic_count * weft_dtype_bytes(WEFT_F32));
}

static void attention_forward(weft_lowering *l, const weft_node *node) {
    const cache c = cache_of_node(l, node);
    const prefix_inputs prefix = prefix_of_node(node);
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
    if (has_prefix(node)) prefix_forward(l, node, &prefix, o, lse);
}

/* True if any gradient is required. With a prefix, it may be the only trained input. */
static bool wants_any(const weft_lowering *l, const weft_node *node) {
    bool any = false;
    for (int i = Q; i <= V; i++) any |= weft_graph_value(l->graph, node->inputs[i])->wants_gradient;
    return any;
}

static void attention_backward(weft_lowering *l, const weft_node *node) {
    const weft_attention args = attention_arguments(l, node);
    const prefix_inputs prefix = prefix_of_node(node);
    int32_t begun[3];
    if (!wants_any(l, node)) {
        prefix_backward(l, node, &prefix, 0, 0);
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
    if (has_prefix(node)) prefix_backward(l, node, &prefix, begun[Q], 1);
    for (int i = Q; i <= V; i++) weft_gradient_end(l, node->inputs[i], begun[i]);
}

const weft_operator weft_operator_attention = {.name = "attention",
                                               .inputs = {"q", "k", "v", "starts"},
                                               WEFT_OPERATOR(attention)};
const weft_operator weft_operator_attention_with_prefix = {.name = "attention_with_prefix",
                                                           .inputs = {"q", "k", "v", "starts", "prefix_k", "prefix_v"},
                                                           WEFT_OPERATOR(attention)};

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
