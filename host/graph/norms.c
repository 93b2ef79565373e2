/* host/graph/norms.c: RMSNorm and LayerNorm of each position, or of each group of elements as wide as the gain (a
 * head). x, y: (B,T,n*D) with a gain of D; rstd, and for LayerNorm the mean: (B,T,n), computed only for backward. */
#include "graph/record.h"

static bool is_layer_norm(const weft_node *node) {
    return node->op == &weft_operator_layer_norm;
}

/* Returns the number of normalized rows: n for each position. */
static int64_t norm_rows(const weft_graph *graph, const weft_node *node) {
    return weft_node_places(graph, node) * (node->width / node->weight->in);
}

static weft_status norm_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_status status = weft_infer_gain(node, node->width, err);
    if (status != WEFT_OK) return status;
    if (is_layer_norm(node) != (node->weight->bias >= 0))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              is_layer_norm(node) ? "the gain has no bias; LayerNorm needs one (has_bias)"
                                                  : "the gain has a bias, which RMSNorm does not support");
    if (!(node->eps >= 0.0)) return weft_error_set(err, WEFT_E_PLUGIN, "eps is %g; it cannot be negative", node->eps);
    node->statistic_count = norm_rows(graph, node) * (is_layer_norm(node) ? 2 : 1);
    return WEFT_OK;
}

static weft_norm norm_arguments(const weft_lowering *l, const weft_node *node) {
    return (weft_norm){.rows = norm_rows(l->graph, node),
                       .width = node->weight->in,
                       .eps = node->eps,
                       .form = is_layer_norm(node) ? WEFT_NORM_LAYER : WEFT_NORM_RMS,
                       .gain_from_one = node->weight->gain_from_one,
                       .dtype = l->graph->dtype};
}

/* rstd of all rows, then their means. */
static void norm_bind_statistics(weft_lowering *l, const weft_node *node) {
    const int32_t statistics = weft_lower_value(l, node->statistic);
    const int64_t bytes = norm_rows(l->graph, node) * weft_dtype_bytes(WEFT_F32);
    weft_lower_bind_part(l, "rstd", offsetof(weft_norm, rstd), statistics, 0, bytes);
    if (is_layer_norm(node)) weft_lower_bind_part(l, "mean", offsetof(weft_norm, mean), statistics, bytes, bytes);
}

/* Fuses a preceding addition into the norm kernel, which then writes the sum and does not read it again. */
static void norm_forward(weft_lowering *l, const weft_node *node) {
    const weft_norm args = norm_arguments(l, node);
    const int32_t x = weft_lower_value(l, node->inputs[0]);
    int32_t a = 0, b = 0;
    const bool adds = weft_lower_take_add(l, x, &a, &b);
    weft_lower_begin(l, &weft_kernel_norm, &args, sizeof args);
    WEFT_BIND(l, weft_norm, x, adds ? a : x);
    if (adds) {
        WEFT_BIND(l, weft_norm, residual, b);
        WEFT_BIND(l, weft_norm, sum, x);
    }
    WEFT_BIND(l, weft_norm, gain, weft_weight_values(l, node->weight));
    WEFT_BIND(l, weft_norm, bias, weft_weight_bias(l, node->weight));
    WEFT_BIND(l, weft_norm, y, weft_lower_value(l, node->output));
    norm_bind_statistics(l, node);
    weft_lower_end(l);
}

static void norm_backward(weft_lowering *l, const weft_node *node) {
    weft_norm args = norm_arguments(l, node);
    const int32_t dy = weft_gradient_of(l, node->output);
    const int32_t dgain = weft_weight_gradient(l, node->weight, &args.accumulate_dgain);
    const int32_t dbias = weft_weight_bias_gradient(l, node->weight, &args.accumulate_dbias);
    const int32_t dx = weft_gradient_target(l, node->inputs[0], &args.accumulate_dx);
    weft_lower_begin(l, &weft_kernel_norm_backward, &args, sizeof args);
    WEFT_BIND(l, weft_norm, x, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_norm, gain, weft_weight_values(l, node->weight));
    norm_bind_statistics(l, node);
    WEFT_BIND(l, weft_norm, dy, dy);
    WEFT_BIND(l, weft_norm, dx, dx);
    WEFT_BIND(l, weft_norm, dgain, dgain);
    WEFT_BIND(l, weft_norm, dbias, dbias);
    weft_lower_end(l);
}

const weft_operator weft_operator_rms_norm = {
    .name = "rms_norm", .inputs = {"x"}, WEFT_OPERATOR(norm), .any_places = true};
const weft_operator weft_operator_layer_norm = {
    .name = "layer_norm", .inputs = {"x"}, WEFT_OPERATOR(norm), .any_places = true};
