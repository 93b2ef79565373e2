/* host/graph/elementwise.c: y = f(x), and gated y = f(gate) * up. All (B,T,F). */
#include "graph/record.h"

static weft_status activation_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_status status = node->n_inputs == 2 ? weft_infer_numbers(graph, node, 1, node->width, err) : WEFT_OK;
    if (status != WEFT_OK || (node->form >= WEFT_SILU && node->form <= WEFT_GELU_TANH)) return status;
    return weft_error_set(err, WEFT_E_PLUGIN, "form %d is not one of weft_activation_form, which are %d to %d",
                          node->form, WEFT_SILU, WEFT_GELU_TANH);
}

static weft_activation activation_arguments(const weft_lowering *l, const weft_node *node) {
    return (weft_activation){.n = weft_node_places(l->graph, node) * node->width,
                             .form = node->form,
                             .dtype = l->graph->dtype};
}

static void activation_forward(weft_lowering *l, const weft_node *node) {
    const weft_activation args = activation_arguments(l, node);
    WEFT_CALL(l, &weft_kernel_activation, args, WEFT_AT(x, weft_lower_value(l, node->inputs[0])),
              WEFT_AT(up, weft_lower_value(l, node->inputs[1])), WEFT_AT(y, weft_lower_value(l, node->output)));
}

/* If gate and up are the same value, one call makes two contributions; the second one uses separate storage. */
static void activation_backward(weft_lowering *l, const weft_node *node) {
    weft_activation args = activation_arguments(l, node);
    const weft_value gate = node->inputs[0], up = node->inputs[1];
    const bool gated = node->n_inputs == 2, twice = gated && gate.id == up.id;
    const int32_t dy = weft_gradient_of(l, node->output);
    const int32_t dx = weft_gradient_target(l, gate, &args.accumulate_dx);
    const int32_t dup = twice   ? weft_gradient_begin(l, up)
                        : gated ? weft_gradient_target(l, up, &args.accumulate_dup)
                                : 0;
    WEFT_CALL(l, &weft_kernel_activation_backward, args, WEFT_AT(x, weft_lower_value(l, node->inputs[0])),
              WEFT_AT(up, weft_lower_value(l, node->inputs[1])), WEFT_AT(dy, dy), WEFT_AT(dx, dx), WEFT_AT(dup, dup));
    if (twice) weft_gradient_end(l, up, dup);
}

const weft_operator weft_operator_activation = {
    .name = "activation", .inputs = {"x"}, WEFT_OPERATOR(activation), .any_places = true};
const weft_operator weft_operator_swiglu = {
    .name = "swiglu", .inputs = {"gate", "up"}, WEFT_OPERATOR(activation), .any_places = true};
const weft_operator weft_operator_geglu = {
    .name = "geglu", .inputs = {"gate", "up"}, WEFT_OPERATOR(activation), .any_places = true};

/* ---- linear functions of one input: scale, dropout, rope ---- */

void weft_linear_forward(weft_lowering *l, const weft_node *node) {
    node->op->apply(l, node, weft_lower_value(l, node->inputs[0]), weft_lower_value(l, node->output), 0, false);
}

void weft_linear_backward(weft_lowering *l, const weft_node *node) {
    const int32_t dy = weft_gradient_of(l, node->output);
    int32_t accumulate = 0;
    const int32_t dx = weft_gradient_target_over(l, node->inputs[0], dy, &accumulate);
    if (dx != 0) node->op->apply(l, node, dy, dx, accumulate, true);
}

/* y = factor * x. Both (B,T,D). */

static weft_status scale_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    (void)graph;
    if (node->factor - node->factor == 0.0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_PLUGIN, "the factor is %g; a finite one is needed", node->factor);
}

static void scale_apply(weft_lowering *l, const weft_node *node, int32_t x, int32_t y, int32_t accumulate,
                        bool backward) {
    const weft_scale args = {.n = weft_node_places(l->graph, node) * node->width,
                             .factor = node->factor,
                             .accumulate = accumulate,
                             .dtype = l->graph->dtype};
    (void)backward;
    WEFT_CALL(l, &weft_kernel_scale, args, WEFT_AT(x, x), WEFT_AT(y, y));
}

const weft_operator weft_operator_scale = {.name = "scale",
                                           .inputs = {"x"},
                                           .infer = scale_infer,
                                           WEFT_LINEAR(scale),
                                           .in_place = 1u << 0,
                                           .any_places = true};

/* y = x / (1 - p) for kept elements, else 0. Both (B,T,D).
 *
 * The mask is a function of seed, sequence index in the stream, site and element (weft_dropout). So forward, recompute
 * and backward draw the same mask and store no mask. */

static weft_status dropout_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    node->width = weft_graph_value(graph, node->inputs[0])->width;
    return weft_infer_numbers(graph, node, 0, 0, err);
}

static void dropout_apply(weft_lowering *l, const weft_node *node, int32_t x, int32_t y, int32_t accumulate,
                          bool backward) {
    const weft_graph_spec *spec = &l->graph->spec;
    const weft_dropout args = {.batch = spec->rows,
                               .row = spec->length * node->width,
                               .seed = spec->seed,
                               .p = node->factor,
                               .site = node->site,
                               .accumulate = accumulate,
                               .dtype = l->graph->dtype};
    (void)backward;
    WEFT_CALL(l, &weft_kernel_dropout, args, WEFT_AT(x, x),
              WEFT_AT(first, weft_lower_storage(l, WEFT_HOME_FIRST, 0, 0, weft_dtype_bytes(WEFT_I64))), WEFT_AT(y, y));
}

const weft_operator weft_operator_dropout = {
    .name = "dropout", .inputs = {"x"}, .infer = dropout_infer, WEFT_LINEAR(dropout), .in_place = 1u << 0};

/* y = a + b. Backward runs no kernel: both inputs share the output's gradient. */

static weft_status add_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    return weft_infer_numbers(graph, node, 1, node->width, err);
}

static void add_forward(weft_lowering *l, const weft_node *node) {
    weft_lower_add(l, weft_lower_value(l, node->output), weft_lower_value(l, node->inputs[0]),
                   weft_lower_value(l, node->inputs[1]), weft_node_places(l->graph, node) * node->width,
                   l->graph->dtype);
}

static void add_backward(weft_lowering *l, const weft_node *node) {
    const int32_t dy = weft_gradient_of(l, node->output);
    weft_gradient_share(l, node->inputs[0], dy);
    weft_gradient_share(l, node->inputs[1], dy);
}

const weft_operator weft_operator_add = {
    .name = "add", .inputs = {"a", "b"}, WEFT_OPERATOR(add), .in_place = 1u << 0 | 1u << 1, .any_places = true};

/* A weight's matrix (out, in) as a value with `out` positions. The parameter's gradient is fp32. */

static weft_status matrix_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_status status = weft_infer_dense(graph, node, err);
    if (status != WEFT_OK) return status;
    node->width = node->weight->in;
    node->places = node->weight->out;
    return WEFT_OK;
}

static void matrix_forward(weft_lowering *l, const weft_node *node) {
    const int64_t bytes = weft_dtype_span(l->graph->dtype, node->places * node->width);
    weft_lower_copy(l, weft_lower_value(l, node->output), weft_lower_parameter(l, node->weight->parameter), bytes);
}

/* Runs sum_rows on one row of all elements, which widens them and accumulates. */
static void matrix_backward(weft_lowering *l, const weft_node *node) {
    weft_sum_rows args = {.rows = 1, .width = node->places * node->width, .dtype = l->graph->dtype};
    const int32_t dy = weft_gradient_of(l, node->output);
    const int32_t dweight = weft_weight_gradient(l, node->weight, node->weight->parameter, &args.accumulate);
    if (dweight == 0) return;
    WEFT_CALL(l, &weft_kernel_sum_matrix, args, WEFT_AT(x, dy), WEFT_AT(out, dweight));
}

const weft_operator weft_operator_matrix = {.name = "matrix", WEFT_OPERATOR(matrix)};
