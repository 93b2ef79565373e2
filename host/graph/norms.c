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

/* Fuses a preceding addition into the norm kernel, which then writes the sum and does not read it again. */
static void norm_forward(weft_lowering *l, const weft_node *node) {
    const int64_t bytes = norm_rows(l->graph, node) * weft_dtype_bytes(WEFT_F32);
    const int32_t saved = weft_lower_value(l, node->statistic); /* rstd of all rows, then their means */
    const weft_norm args = norm_arguments(l, node);
    const int32_t x = weft_lower_value(l, node->inputs[0]);
    int32_t a = 0, b = 0;
    const bool adds = weft_lower_take_add(l, x, &a, &b);
    WEFT_CALL(l, &weft_kernel_norm, args, WEFT_AT(x, adds ? a : x), WEFT_AT(residual, b), WEFT_AT(sum, adds ? x : 0),
              WEFT_AT(gain, weft_lower_parameter(l, node->weight->parameter)),
              WEFT_AT(bias, weft_lower_parameter(l, node->weight->bias)), WEFT_AT(y, weft_lower_value(l, node->output)),
              WEFT_PART("rstd", rstd, saved, 0, bytes),
              WEFT_PART("mean", mean, is_layer_norm(node) ? saved : 0, bytes, bytes));
}

static void norm_backward(weft_lowering *l, const weft_node *node) {
    const int64_t bytes = norm_rows(l->graph, node) * weft_dtype_bytes(WEFT_F32);
    const int32_t saved = weft_lower_value(l, node->statistic); /* rstd of all rows, then their means */
    weft_norm args = norm_arguments(l, node);
    const int32_t dy = weft_gradient_of(l, node->output);
    const int32_t dgain = weft_weight_gradient(l, node->weight, node->weight->parameter, &args.accumulate_dgain);
    const int32_t dbias = weft_weight_gradient(l, node->weight, node->weight->bias, &args.accumulate_dbias);
    const int32_t dx = weft_gradient_target(l, node->inputs[0], &args.accumulate_dx);
    WEFT_CALL(l, &weft_kernel_norm_backward, args, WEFT_AT(x, weft_lower_value(l, node->inputs[0])),
              WEFT_AT(gain, weft_lower_parameter(l, node->weight->parameter)), WEFT_PART("rstd", rstd, saved, 0, bytes),
              WEFT_PART("mean", mean, is_layer_norm(node) ? saved : 0, bytes, bytes), WEFT_AT(dy, dy), WEFT_AT(dx, dx),
              WEFT_AT(dgain, dgain), WEFT_AT(dbias, dbias));
}

const weft_operator weft_operator_rms_norm = {
    .name = "rms_norm", .inputs = {"x"}, WEFT_OPERATOR(norm), .any_places = true};
const weft_operator weft_operator_layer_norm = {
    .name = "layer_norm", .inputs = {"x"}, WEFT_OPERATOR(norm), .any_places = true};
