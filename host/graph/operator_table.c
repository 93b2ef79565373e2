/* host/graph/operator_table.c: the functions that a model's forward calls: one per operator, and the micro-batch's
 * arrays. */
#include "graph/gradient.h"
#include "graph/operators.h"

#include <stdlib.h>

/* ---- a plugin's custom operator with its own forward and backward ---- */

/* True if the operator supports the dtype. Without stated types it supports only fp32. */
static bool custom_takes(const weft_custom_op *op, int32_t dtype) {
    const uint32_t stated = op->dtypes != 0 ? op->dtypes : 1u << WEFT_F32;
    return (stated >> dtype & 1u) != 0;
}

/* "fp32 or bf16" */
static void name_types(char text[40], const weft_custom_op *op) {
    size_t n = 0;
    text[0] = '\0';
    for (int32_t dtype = WEFT_F32; dtype <= WEFT_F16; dtype++)
        if (custom_takes(op, dtype))
            n += (size_t)snprintf(text + n, 40 - n, "%s%s", n == 0 ? "" : " or ", weft_dtype_name(dtype));
}

static weft_status custom_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    char types[40];
    name_types(types, node->custom);
    if (!custom_takes(node->custom, graph->dtype))
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "this operator of the plugin computes in %s, and this model runs in %s: set [train] "
                              "precision = %s",
                              types, weft_dtype_name(graph->dtype), types);
    for (int32_t i = 0; i < node->n_inputs; i++) {
        const weft_value_record *input = weft_graph_value(graph, node->inputs[i]);
        if (input->dtype != graph->dtype && input->dtype != WEFT_I32)
            return weft_error_set(err, WEFT_E_PLUGIN, "input %d holds %s; %s or int32 is needed", i,
                                  weft_dtype_name(input->dtype), weft_dtype_name(graph->dtype));
    }
    return WEFT_OK;
}

static weft_custom_args custom_arguments(const weft_lowering *l, const weft_node *node) {
    return (weft_custom_args){.op = node->custom, .args = node->custom_args, .dtype = l->graph->dtype};
}

static void custom_bind_inputs(weft_lowering *l, const weft_node *node) {
    for (int32_t i = 0; i < node->n_inputs; i++)
        weft_lower_bind(l, "input", offsetof(weft_custom_args, inputs) + (size_t)i * sizeof(weft_ref),
                        weft_lower_value(l, node->inputs[i]));
}

static void custom_forward(weft_lowering *l, const weft_node *node) {
    const weft_custom_args args = custom_arguments(l, node);
    weft_lower_begin(l, &weft_kernel_custom, &args, sizeof args);
    custom_bind_inputs(l, node);
    WEFT_BIND(l, weft_custom_args, output, weft_lower_value(l, node->output));
    weft_lower_end(l);
}

/* True for an input that was passed before. Its second contribution uses separate storage, so that the plugin need not
 * detect repeats. */
static bool is_repeated_input(const weft_node *node, int32_t i) {
    for (int32_t k = 0; k < i; k++)
        if (node->inputs[k].id == node->inputs[i].id) return true;
    return false;
}

static void custom_backward(weft_lowering *l, const weft_node *node) {
    weft_custom_args args = custom_arguments(l, node);
    const int32_t d_output = weft_gradient_of(l, node->output);
    int32_t begun[WEFT_NODE_INPUTS] = {0};
    for (int32_t i = 0; i < node->n_inputs; i++)
        begun[i] = is_repeated_input(node, i) ? weft_gradient_begin(l, node->inputs[i])
                                              : weft_gradient_target(l, node->inputs[i], &args.accumulate[i]);
    weft_lower_begin(l, &weft_kernel_custom_backward, &args, sizeof args);
    if (node->custom->keeps_inputs != 0) custom_bind_inputs(l, node);
    if (node->custom->keeps_output != 0) WEFT_BIND(l, weft_custom_args, output, weft_lower_value(l, node->output));
    WEFT_BIND(l, weft_custom_args, d_output, d_output);
    for (int32_t i = 0; i < node->n_inputs; i++)
        weft_lower_bind(l, "gradient of input", offsetof(weft_custom_args, d_inputs) + (size_t)i * sizeof(weft_ref),
                        begun[i]);
    weft_lower_end(l);
    for (int32_t i = 0; i < node->n_inputs; i++)
        if (is_repeated_input(node, i)) weft_gradient_end(l, node->inputs[i], begun[i]);
}

const weft_operator weft_operator_custom = {.name = "custom", WEFT_OPERATOR(custom)};

const char *weft_graph_unqueued(const weft_graph *graph) {
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        const weft_custom_op *op = graph->nodes[i].custom;
        if (op != NULL && (op->flags & WEFT_CUSTOM_QUEUES) == 0) return op->name;
    }
    return NULL;
}

/* Checks the sizes that the node itself must store, which cannot wait for infer. */
static weft_status check_custom(const weft_custom_op *op, int32_t n_inputs, int64_t width, weft_error *err) {
    if (op == NULL || !WEFT_WHOLE(op, weft_custom_op) || op->name == NULL || op->forward == NULL ||
        op->backward == NULL)
        return weft_error_set(err, WEFT_E_PLUGIN, "a custom operator needs a name, a forward and a backward");
    if (n_inputs < 1 || n_inputs > WEFT_NODE_INPUTS)
        return weft_error_set(err, WEFT_E_PLUGIN, "custom %s: %d inputs; 1 to %d are possible", op->name, n_inputs,
                              WEFT_NODE_INPUTS);
    if (width < 1)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "custom %s: a result %lld wide; at least one element per place is needed", op->name,
                              (long long)width);
    return WEFT_OK;
}

weft_value weft_op_custom(weft_graph *graph, const weft_custom_op *op, const weft_value *inputs, int32_t n_inputs,
                          int64_t width, const void *args, size_t n) {
    weft_error err = WEFT_ERROR_INIT;
    weft_node node = {.op = &weft_operator_custom, .n_inputs = n_inputs, .custom = op, .width = width};
    weft_status status = check_custom(op, n_inputs, width, &err);
    if (status == WEFT_OK && n > 0) {
        node.custom_args = malloc(n);
        if (node.custom_args == NULL) status = weft_error_set(&err, WEFT_E_MEMORY, "no memory for %zu bytes", n);
        else memcpy(node.custom_args, args, n);
    }
    if (status != WEFT_OK) return weft_record_fail(graph, NULL, status, "%s", err.text);
    for (int32_t i = 0; i < n_inputs; i++) node.inputs[i] = inputs[i];
    (void)snprintf(node.label, sizeof node.label, "%s", op->name);
    return weft_record_node(graph, &node);
}

static void graph_info(const weft_graph *graph, weft_graph_info *out) {
    out->mode = graph->spec.mode;
    out->rows = graph->spec.rows;
    out->length = graph->spec.length;
    out->dtype = graph->dtype;
}

/* Returns 0 for an invalid value. */
static int64_t value_width(const weft_graph *graph, weft_value value) {
    return value.id < (uint32_t)graph->n_values ? weft_graph_value(graph, value)->width : 0;
}

static weft_value micro_batch_part(weft_graph *graph, weft_value *part, int32_t home) {
    if (part->id == 0) *part = weft_record_outside(graph, home, WEFT_I32, 1);
    return *part;
}

static weft_value micro_batch_ids(weft_graph *graph) {
    return micro_batch_part(graph, &graph->ids, WEFT_HOME_IDS);
}

static weft_value micro_batch_positions(weft_graph *graph) {
    return micro_batch_part(graph, &graph->positions, WEFT_HOME_POSITIONS);
}

static weft_value micro_batch_starts(weft_graph *graph) {
    return micro_batch_part(graph, &graph->starts, WEFT_HOME_STARTS);
}

/* Reports an error to a model that calls it: no kernel of device/1 sums a value into the fp64 loss. */
static void refuse_loss(weft_graph *graph, weft_value value, int32_t kind) {
    (void)value;
    (void)kind;
    (void)weft_record_fail(
        graph, NULL, WEFT_E_UNSUPPORTED,
        "`loss` is not supported by SDK 1.0: the loss of a model is that of its lm_head; remove the call");
}

const weft_ops weft_graph_ops = {.struct_size = (uint32_t)sizeof(weft_ops),
                                 .info = graph_info,
                                 .width = value_width,
                                 .ids = micro_batch_ids,
                                 .positions = micro_batch_positions,
                                 .starts = micro_batch_starts,
                                 .embedding = weft_op_embedding,
                                 .linear = weft_op_linear,
                                 .rms_norm = weft_op_rms_norm,
                                 .layer_norm = weft_op_layer_norm,
                                 .rope = weft_op_rope,
                                 .attention = weft_op_attention,
                                 .activation = weft_op_activation,
                                 .gated = weft_op_gated,
                                 .swiglu = weft_op_swiglu,
                                 .scale = weft_op_scale,
                                 .add = weft_op_add,
                                 .lm_head = weft_op_lm_head,
                                 .loss = refuse_loss,
                                 .output = weft_record_output,
                                 .custom = weft_op_custom,
                                 .multiply = weft_op_multiply,
                                 .dropout = weft_op_dropout,
                                 .weight_norm = weft_op_weight_norm,
                                 .matrix = weft_op_matrix,
                                 .attention_with_prefix = weft_op_attention_with_prefix,
                                 .prefix_attention = weft_op_prefix_attention};
