/* host/graph/custom.c: a plugin's custom operator with its own forward and backward. */
#include "base/text.h"
#include "graph/record.h"

/* True if the operator supports the dtype. Without stated types it supports only fp32. */
static bool custom_takes(const weft_custom_op *op, int32_t dtype) {
    const uint32_t stated = op->dtypes != 0 ? op->dtypes : 1u << WEFT_F32;
    return (stated >> dtype & 1u) != 0;
}

static weft_status custom_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    char types[40] = ""; /* "fp32 or bf16" */
    for (int32_t dtype = WEFT_F32; dtype <= WEFT_F16; dtype++)
        if (custom_takes(node->custom, dtype))
            weft_words_append(types, sizeof types, "%s%s", types[0] == '\0' ? "" : " or ", weft_dtype_name(dtype));
    if (!custom_takes(node->custom, graph->dtype))
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "this operator of the plugin computes in %s, and this model runs in %s: set [train] "
                              "precision = %s",
                              types, weft_dtype_name(graph->dtype), types);
    for (int32_t i = 0; i < node->n_inputs; i++) {
        const weft_value_record *input = weft_graph_value(graph, node->inputs[i]);
        if (input->dtype != graph->dtype && input->dtype != WEFT_I32)
            return weft_error_set(err, WEFT_E_PLUGIN, "input %d has dtype %s; %s or int32 is required", i,
                                  weft_dtype_name(input->dtype), weft_dtype_name(graph->dtype));
    }
    return WEFT_OK;
}

static weft_custom_args custom_arguments(const weft_lowering *l, const weft_node *node) {
    return (weft_custom_args){.op = node->custom, .args = node->custom_args, .dtype = l->graph->dtype};
}

static size_t input_operands(weft_lowering *l, const weft_node *node, weft_operand *out) {
    for (int32_t i = 0; i < node->n_inputs; i++)
        out[i] = (weft_operand){"input", weft_lower_value(l, node->inputs[i]),
                                (uint32_t)offsetof(weft_custom_args, inputs[i]), 0, -1};
    return (size_t)node->n_inputs;
}

static void custom_forward(weft_lowering *l, const weft_node *node) {
    const weft_custom_args args = custom_arguments(l, node);
    weft_operand operands[WEFT_NODE_INPUTS + 1];
    size_t n = input_operands(l, node, operands);
    operands[n++] = WEFT_AT(output, weft_lower_value(l, node->output));
    weft_lower_call(l, &weft_kernel_custom, &args, sizeof args, operands, n);
}

/* True for an input that was passed before: its second contribution uses separate storage. */
static bool is_repeated_input(const weft_node *node, int32_t i) {
    for (int32_t k = 0; k < i; k++)
        if (node->inputs[k].id == node->inputs[i].id) return true;
    return false;
}

static void custom_backward(weft_lowering *l, const weft_node *node) {
    weft_custom_args args = custom_arguments(l, node);
    weft_operand operands[2 * WEFT_NODE_INPUTS + 2];
    size_t n = 0;
    int32_t begun[WEFT_NODE_INPUTS] = {0};
    for (int32_t i = 0; i < node->n_inputs; i++)
        begun[i] = is_repeated_input(node, i) ? weft_gradient_begin(l, node->inputs[i])
                                              : weft_gradient_target(l, node->inputs[i], &args.accumulate[i]);
    if (node->custom->keeps_inputs != 0) n = input_operands(l, node, operands);
    if (node->custom->keeps_output != 0) operands[n++] = WEFT_AT(output, weft_lower_value(l, node->output));
    operands[n++] = WEFT_AT(d_output, weft_gradient_of(l, node->output));
    for (int32_t i = 0; i < node->n_inputs; i++)
        operands[n++] =
            (weft_operand){"gradient of input", begun[i], (uint32_t)offsetof(weft_custom_args, d_inputs[i]), 0, -1};
    weft_lower_call(l, &weft_kernel_custom_backward, &args, sizeof args, operands, n);
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
