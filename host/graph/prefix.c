/* host/graph/prefix.c: attention over only the keys of a prefix, and the prefix calls shared by both operators that
 * support one. q, o: (B,T,H*d); keys and values: (P,Hkv*d); lse: (B,H,T), computed only for backward. */
#include "graph/prefix.h"

#include "graph/gradient.h"
#include "graph/operators.h"

enum { Q = 0, K = 1, V = 2 };

static weft_status judge_keys(const weft_graph *graph, const weft_node *node, int32_t i, weft_error *err) {
    const weft_value_record *value = weft_graph_value(graph, node->inputs[i]);
    const int64_t width = node->attention.kv_heads * node->attention.head_dim;
    if (value->dtype == graph->dtype && value->width == width) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "`%s` is %lld %s a place; %lld %s are needed", node->op->inputs[i],
                          (long long)value->width, weft_dtype_name(value->dtype), (long long)width,
                          weft_dtype_name(graph->dtype));
}

weft_status weft_prefix_infer(const weft_graph *graph, const weft_node *node, int32_t k, int32_t v, weft_error *err) {
    const weft_attention_args *args = &node->attention;
    const int64_t keys = weft_value_places(weft_graph_value(graph, node->inputs[k]));
    const int64_t values = weft_value_places(weft_graph_value(graph, node->inputs[v]));
    weft_status status = WEFT_OK;
    if (args->cap > 0.0 || (args->window > 0 && node->op == &weft_operator_attention_with_prefix))
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "this model's attention %s, with which no prefix is served: take a model without, or "
                              "another adapter",
                              args->cap > 0.0 ? "caps its scores" : "has a window");
    status = judge_keys(graph, node, k, err);
    if (status == WEFT_OK) status = judge_keys(graph, node, v, err);
    if (status == WEFT_OK && keys != values)
        status = weft_error_set(err, WEFT_E_PLUGIN, "a prefix of %lld keys and %lld values; both are as many",
                                (long long)keys, (long long)values);
    return status;
}

static weft_prefix prefix_arguments(const weft_lowering *l, const weft_node *node, const weft_prefix_inputs *inputs) {
    const weft_graph_spec *spec = &l->graph->spec;
    const weft_prefix args = {.struct_size = (uint32_t)sizeof args,
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
    return args;
}

/* Binds the operands of both directions. The prefix's length shifts the positions of the queries. */
static void bind_prefix(weft_lowering *l, const weft_node *node, const weft_prefix_inputs *inputs, int64_t places) {
    WEFT_BIND(l, weft_prefix, q, weft_lower_value(l, inputs->q));
    WEFT_BIND(l, weft_prefix, k, weft_lower_value(l, inputs->k));
    WEFT_BIND(l, weft_prefix, v, weft_lower_value(l, inputs->v));
    if (node->table != NULL) {
        const int64_t row = node->table->width * weft_dtype_bytes(WEFT_F32);
        weft_lower_bind_part(l, "turn", offsetof(weft_prefix, turn), weft_lower_table(l, node->table, places + 1),
                             places * row, row);
    }
}

void weft_prefix_forward(weft_lowering *l, const weft_node *node, const weft_prefix_inputs *inputs, int32_t o,
                         int32_t lse) {
    const weft_prefix args = prefix_arguments(l, node, inputs);
    weft_lower_begin(l, &weft_kernel_prefix, &args, sizeof args);
    bind_prefix(l, node, inputs, args.places);
    WEFT_BIND(l, weft_prefix, o, o);
    WEFT_BIND(l, weft_prefix, lse, lse);
    weft_lower_end(l);
}

void weft_prefix_backward(weft_lowering *l, const weft_node *node, const weft_prefix_inputs *inputs, int32_t dq,
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
    if (status == WEFT_OK) status = weft_prefix_infer(graph, node, K, V, err);
    node->width = args->heads * args->head_dim;
    node->statistic_count = weft_graph_places(graph) * args->heads;
    return status;
}

static weft_prefix_inputs inputs_of(const weft_node *node) {
    const weft_prefix_inputs inputs = {node->inputs[Q], node->inputs[K], node->inputs[V], false};
    return inputs;
}

static void prefix_attention_forward(weft_lowering *l, const weft_node *node) {
    const weft_prefix_inputs inputs = inputs_of(node);
    weft_prefix_forward(l, node, &inputs, weft_lower_value(l, node->output), weft_lower_value(l, node->statistic));
}

static void prefix_attention_backward(weft_lowering *l, const weft_node *node) {
    const weft_prefix_inputs inputs = inputs_of(node);
    int32_t accumulate = 0;
    const int32_t dq = weft_gradient_target(l, node->inputs[Q], &accumulate);
    weft_prefix_backward(l, node, &inputs, dq, accumulate);
}

const weft_operator weft_operator_prefix_attention = {.name = "prefix_attention",
                                                      .inputs = {"q", "prefix_k", "prefix_v"},
                                                      .infer = prefix_attention_infer,
                                                      .forward = prefix_attention_forward,
                                                      .backward = prefix_attention_backward};

weft_value weft_op_prefix_attention(weft_graph *graph, weft_value q, weft_value prefix_k, weft_value prefix_v,
                                    const weft_attention_args *args) {
    weft_node node = {.op = &weft_operator_prefix_attention, .inputs = {q, prefix_k, prefix_v}, .n_inputs = 3};
    weft_record_arguments(graph, &node, &node.attention, sizeof node.attention, args,
                          WEFT_SIZE_1_0(weft_attention_args));
    return weft_record_node(graph, &node);
}
