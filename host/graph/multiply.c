/* host/graph/multiply.c: multiplication of x by factors shared by all positions. x, y: (B,T,D); factors: (n) with
 * D = n k, each for k neighbours. `multiply` uses a gain. `weight_norm` uses a gain divided by the norms of a matrix's
 * rows. Forward computes the norms once per FORWARD and stores them on the tape; backward reads them as constants. */
#include "graph/record.h"

static weft_status multiply_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_status status = weft_infer_gain(node, node->width, err);
    (void)graph;
    if (status == WEFT_OK && (node->weight->bias >= 0 || node->weight->gain_from_one))
        return weft_error_set(err, WEFT_E_PLUGIN, "the gain has a bias or is stored less one; factors are plain");
    return status;
}

/* Checks the matrix for row norms, and the shape of a low-rank part. */
static weft_status weight_norm_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_weight *w = node->constants[WEFT_CONSTANT_MATRIX], *down = node->constants[WEFT_CONSTANT_DOWN],
                      *up = node->constants[WEFT_CONSTANT_UP];
    weft_status status = multiply_infer(graph, node, err);
    if (status != WEFT_OK) return status;
    if (w == NULL || w->role == WEFT_WEIGHT_GAIN || (down == NULL) != (up == NULL))
        return weft_error_set(err, WEFT_E_PLUGIN, "a matrix is required, and both low-rank factors or neither");
    if (node->width != w->out || node->weight->in != w->out)
        return weft_error_set(
            err, WEFT_E_PLUGIN,
            "`x` has width %lld, the matrix has %lld rows and the magnitude %lld elements; all must be equal",
            (long long)node->width, (long long)w->out, (long long)node->weight->in);
    if (down != NULL && (down->role == WEFT_WEIGHT_GAIN || up->role == WEFT_WEIGHT_GAIN || down->in != w->in ||
                         up->out != w->out || up->in != down->out))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "low-rank factors (%lld, %lld) and (%lld, %lld) do not match the matrix (%lld, %lld)",
                              (long long)down->out, (long long)down->in, (long long)up->out, (long long)up->in,
                              (long long)w->out, (long long)w->in);
    if (w->bias >= 0 && graph->declared->parameters[w->bias].trainable)
        return weft_error_set(err, WEFT_E_UNSUPPORTED,
                              "the matrix has a bias that is trained, which weight_norm takes as a constant: leave it "
                              "out of [train] trainable");
    node->statistic_count = w->out;
    return WEFT_OK;
}

static weft_multiply factor_arguments(const weft_lowering *l, const weft_node *node) {
    return (weft_multiply){.rows = weft_node_places(l->graph, node),
                           .width = node->width,
                           .parts = node->weight->in,
                           .dtype = l->graph->dtype};
}

/* The bias of the matmul that computed x, which is not scaled. */
static weft_operand shift_of(weft_lowering *l, const weft_node *node) {
    const weft_weight *w = node->constants[WEFT_CONSTANT_MATRIX];
    const int64_t f32 = weft_dtype_bytes(WEFT_F32);
    if (w == NULL) return (weft_operand){.storage = 0};
    return (weft_operand){"bias", weft_lower_parameter(l, w->bias), offsetof(weft_multiply, shift),
                          w->is_slice ? w->first * f32 : 0, w->out * f32};
}

static void lower_norms(weft_lowering *l, const weft_node *node, int32_t norms) {
    const weft_weight *w = node->constants[WEFT_CONSTANT_MATRIX], *down = node->constants[WEFT_CONSTANT_DOWN],
                      *up = node->constants[WEFT_CONSTANT_UP];
    const weft_row_norms args = {.rows = w->out,
                                 .width = w->in,
                                 .rank = down == NULL ? 0 : down->out,
                                 .factor = node->factor,
                                 .dtype = l->graph->dtype,
                                 .dtype_w = weft_graph_read_dtype(l->graph, w->parameter)};
    const int64_t first = w->is_slice ? w->first * w->in : 0;
    WEFT_CALL(l, &weft_kernel_row_norms, args,
              WEFT_PART("weight", w, weft_lower_parameter(l, w->parameter), weft_dtype_span(args.dtype_w, first),
                        weft_dtype_span(args.dtype_w, w->out * w->in)),
              WEFT_AT(down, down == NULL ? 0 : weft_lower_parameter(l, down->parameter)),
              WEFT_AT(up, up == NULL ? 0 : weft_lower_parameter(l, up->parameter)), WEFT_AT(out, norms));
}

static void factors_forward(weft_lowering *l, const weft_node *node) {
    const weft_multiply args = factor_arguments(l, node);
    int32_t norms = weft_lower_value(l, node->statistic); /* 0: absent, or not kept */
    if (norms == 0 && node->statistic_count > 0)
        norms = weft_lower_work(l, node->statistic_count * weft_dtype_bytes(WEFT_F32));
    if (norms != 0) lower_norms(l, node, norms);
    WEFT_CALL(l, &weft_kernel_multiply, args, WEFT_AT(x, weft_lower_value(l, node->inputs[0])),
              WEFT_AT(by, weft_lower_parameter(l, node->weight->parameter)), WEFT_AT(over, norms), shift_of(l, node),
              WEFT_AT(y, weft_lower_value(l, node->output)));
}

/* x is read only for the gain's gradient. */
static void factors_backward(weft_lowering *l, const weft_node *node) {
    weft_multiply args = factor_arguments(l, node);
    const int32_t dy = weft_gradient_of(l, node->output);
    const int32_t dby = weft_weight_gradient(l, node->weight, node->weight->parameter, &args.accumulate_dby);
    const int32_t dx = weft_gradient_target_over(l, node->inputs[0], dy, &args.accumulate_dx);
    WEFT_CALL(l, &weft_kernel_multiply_backward, args, WEFT_AT(x, dby != 0 ? weft_lower_value(l, node->inputs[0]) : dy),
              WEFT_AT(by, weft_lower_parameter(l, node->weight->parameter)),
              WEFT_AT(over, weft_lower_value(l, node->statistic)), shift_of(l, node), WEFT_AT(dy, dy), WEFT_AT(dx, dx),
              WEFT_AT(dby, dby));
}

#define FACTORS .forward = factors_forward, .backward = factors_backward, .in_place = 1u << 0, .any_places = true
const weft_operator weft_operator_multiply = {.name = "multiply", .inputs = {"x"}, .infer = multiply_infer, FACTORS};
const weft_operator weft_operator_weight_norm = {
    .name = "weight_norm", .inputs = {"x"}, .infer = weight_norm_infer, FACTORS};
