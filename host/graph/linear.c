/* host/graph/linear.c: y = x W^T + optional bias over a weight object, or its adapted version. x: (B,T,in), y:
 * (B,T,out). */
#include "graph/adapt.h"
#include "graph/gradient.h"
#include "graph/operators.h"
#include "graph/weight.h"

static weft_status linear_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_value_record *x = weft_graph_value(graph, node->inputs[0]);
    weft_status status = weft_infer_matrix(node, err);
    if (status == WEFT_OK) status = weft_infer_numbers(graph, node, 0, 0, err);
    if (status != WEFT_OK) return status;
    if (x->width != node->weight->in)
        return weft_error_set(err, WEFT_E_PLUGIN, "`x` is %lld wide; the weight is (%lld, %lld) and takes %lld",
                              (long long)x->width, (long long)node->weight->out, (long long)node->weight->in,
                              (long long)node->weight->in);
    node->width = node->weight->out;
    return WEFT_OK;
}

static void linear_forward(weft_lowering *l, const weft_node *node) {
    weft_weight_product(l, node->weight, weft_lower_value(l, node->output), l->graph->dtype,
                        weft_lower_value(l, node->inputs[0]), weft_node_places(l->graph, node), node->weight->in, 0);
}

static void linear_backward(weft_lowering *l, const weft_node *node) {
    const int32_t dy = weft_gradient_of(l, node->output);
    const int64_t places = weft_node_places(l->graph, node);
    int32_t accumulate = 0, dx = 0;
    weft_weight_product_dw(l, node->weight, dy, node->inputs[0], places);
    dx = weft_gradient_target(l, node->inputs[0], &accumulate);
    if (dx != 0) weft_weight_product_dx(l, node->weight, dx, accumulate, dy, places);
}

const weft_operator weft_operator_linear = {
    .name = "linear", .inputs = {"x"}, WEFT_OPERATOR(linear), .any_places = true};

weft_value weft_op_linear(weft_graph *graph, weft_value x, weft_weight *weight) {
    weft_node node = {.op = &weft_operator_linear, .inputs = {x}, .n_inputs = 1, .weight = weight};
    return weft_adapts(graph, weight) ? weft_adapt_linear(graph, x, weight) : weft_record_node(graph, &node);
}

/* ---- multiplication of x by factors shared by all positions ----
 *
 * Multiplies x by factors. x, y: (B,T,D); factors: (n) with D = n k, each
 * for k neighbours.
 *
 * `multiply` uses a gain. `weight_norm` uses a gain divided by the norms of a matrix's rows. Forward computes the norms
 * once per FORWARD and stores them on the tape, and backward reads them as constants. */

enum { MATRIX = 0, DOWN = 1, UP = 2 };

static weft_status multiply_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    weft_status status = weft_infer_numbers(graph, node, 0, 0, err);
    if (status == WEFT_OK) status = weft_infer_gain(node, weft_graph_value(graph, node->inputs[0])->width, err);
    if (status == WEFT_OK && (node->weight->bias >= 0 || node->weight->gain_from_one))
        status = weft_error_set(err, WEFT_E_PLUGIN, "the gain has a bias or is stored less one; factors are plain");
    node->width = weft_graph_value(graph, node->inputs[0])->width;
    return status;
}

/* Checks the matrix for row norms, and the shape of a low-rank part. */
static weft_status weight_norm_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_weight *w = node->constants[MATRIX], *down = node->constants[DOWN], *up = node->constants[UP];
    weft_status status = multiply_infer(graph, node, err);
    if (status != WEFT_OK) return status;
    if (w == NULL || w->role == WEFT_WEIGHT_GAIN || (down == NULL) != (up == NULL))
        return weft_error_set(err, WEFT_E_PLUGIN, "a matrix is needed, and both parts of a low-rank one or neither");
    if (node->width != w->out || node->weight->in != w->out)
        return weft_error_set(
            err, WEFT_E_PLUGIN,
            "`x` is %lld wide, the matrix has %lld rows and the magnitude %lld elements; all must be equal",
            (long long)node->width, (long long)w->out, (long long)node->weight->in);
    if (down != NULL && (down->role == WEFT_WEIGHT_GAIN || up->role == WEFT_WEIGHT_GAIN || down->in != w->in ||
                         up->out != w->out || up->in != down->out))
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "a low-rank part of (%lld, %lld) and (%lld, %lld) does not fit a matrix (%lld, %lld)",
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
    return (weft_multiply){.struct_size = (uint32_t)sizeof(weft_multiply),
                           .rows = weft_node_places(l->graph, node),
                           .width = node->width,
                           .parts = node->weight->in,
                           .dtype = l->graph->dtype};
}

/* Binds the bias of the matmul that computed x; the bias is not scaled. */
static void bind_shift(weft_lowering *l, const weft_node *node) {
    const weft_weight *w = node->constants[MATRIX];
    const int64_t f32 = weft_dtype_bytes(WEFT_F32);
    if (w != NULL && w->bias >= 0)
        weft_lower_bind_part(l, "bias", offsetof(weft_multiply, shift), weft_weight_bias(l, w),
                             w->is_slice ? w->first * f32 : 0, w->out * f32);
}

/* norms 0: absent */
static void lower_factors(weft_lowering *l, const weft_node *node, int32_t norms) {
    const weft_multiply args = factor_arguments(l, node);
    weft_lower_begin(l, &weft_kernel_multiply, &args, sizeof args);
    WEFT_BIND(l, weft_multiply, x, weft_lower_value(l, node->inputs[0]));
    WEFT_BIND(l, weft_multiply, by, weft_weight_values(l, node->weight));
    WEFT_BIND(l, weft_multiply, over, norms);
    bind_shift(l, node);
    WEFT_BIND(l, weft_multiply, y, weft_lower_value(l, node->output));
    weft_lower_end(l);
}

static void multiply_forward(weft_lowering *l, const weft_node *node) {
    lower_factors(l, node, 0);
}

static void lower_norms(weft_lowering *l, const weft_node *node, int32_t norms) {
    const weft_weight *w = node->constants[MATRIX], *down = node->constants[DOWN], *up = node->constants[UP];
    const weft_row_norms args = {.struct_size = (uint32_t)sizeof args,
                                 .rows = w->out,
                                 .width = w->in,
                                 .rank = down == NULL ? 0 : down->out,
                                 .factor = node->factor,
                                 .dtype = l->graph->dtype,
                                 .dtype_w = weft_graph_read_dtype(l->graph, w->parameter)};
    const int64_t first = w->is_slice ? w->first * w->in : 0;
    weft_lower_begin(l, &weft_kernel_row_norms, &args, sizeof args);
    weft_lower_bind_part(l, "weight", offsetof(weft_row_norms, w), weft_weight_values(l, w),
                         weft_dtype_span(args.dtype_w, first), weft_dtype_span(args.dtype_w, w->out * w->in));
    if (down != NULL) WEFT_BIND(l, weft_row_norms, down, weft_weight_values(l, down));
    if (up != NULL) WEFT_BIND(l, weft_row_norms, up, weft_weight_values(l, up));
    WEFT_BIND(l, weft_row_norms, out, norms);
    weft_lower_end(l);
}

static void weight_norm_forward(weft_lowering *l, const weft_node *node) {
    const int32_t kept = weft_lower_value(l, node->statistic);
    const int32_t norms = kept != 0 ? kept : weft_lower_work(l, node->statistic_count * weft_dtype_bytes(WEFT_F32));
    lower_norms(l, node, norms);
    lower_factors(l, node, norms);
}

/* x is read only for the gain's gradient. */
static void lower_backward(weft_lowering *l, const weft_node *node, int32_t norms) {
    weft_multiply args = factor_arguments(l, node);
    const int32_t dy = weft_gradient_of(l, node->output);
    const int32_t dby = weft_weight_gradient(l, node->weight, &args.accumulate_dby);
    const int32_t dx = weft_gradient_target_over(l, node->inputs[0], dy, &args.accumulate_dx);
    weft_lower_begin(l, &weft_kernel_multiply_backward, &args, sizeof args);
    WEFT_BIND(l, weft_multiply, x, dby != 0 ? weft_lower_value(l, node->inputs[0]) : dy);
    WEFT_BIND(l, weft_multiply, by, weft_weight_values(l, node->weight));
    WEFT_BIND(l, weft_multiply, over, norms);
    bind_shift(l, node);
    WEFT_BIND(l, weft_multiply, dy, dy);
    WEFT_BIND(l, weft_multiply, dx, dx);
    WEFT_BIND(l, weft_multiply, dby, dby);
    weft_lower_end(l);
}

static void multiply_backward(weft_lowering *l, const weft_node *node) {
    lower_backward(l, node, 0);
}

static void weight_norm_backward(weft_lowering *l, const weft_node *node) {
    lower_backward(l, node, weft_lower_value(l, node->statistic));
}

const weft_operator weft_operator_multiply = {
    .name = "multiply", .inputs = {"x"}, WEFT_OPERATOR(multiply), .in_place = 1u << 0, .any_places = true};
const weft_operator weft_operator_weight_norm = {
    .name = "weight_norm", .inputs = {"x"}, WEFT_OPERATOR(weight_norm), .in_place = 1u << 0, .any_places = true};

weft_value weft_op_multiply(weft_graph *graph, weft_value x, weft_weight *factors) {
    return weft_record_node(
        graph, &(weft_node){.op = &weft_operator_multiply, .inputs = {x}, .n_inputs = 1, .weight = factors});
}

weft_value weft_op_weight_norm(weft_graph *graph, weft_value x, const weft_weight_norm_args *args) {
    weft_node node = {.op = &weft_operator_weight_norm, .inputs = {x}, .n_inputs = 1};
    weft_weight_norm_args own;
    weft_record_arguments(graph, &node, &own, sizeof own, args, WEFT_SIZE_1_0(weft_weight_norm_args));
    node.weight = own.magnitude;
    node.constants[MATRIX] = own.weight;
    node.constants[DOWN] = own.down;
    node.constants[UP] = own.up;
    node.factor = own.factor;
    return weft_record_node(graph, &node);
}
