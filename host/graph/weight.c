/* host/graph/weight.c: the memory of a weight object's values and gradients, dense or packed, and `linear`:
 * y = x W^T + optional bias. x: (B,T,in), y: (B,T,out). */
#include "graph/record.h"

static bool is_trained(const weft_graph *graph, int32_t parameter) {
    return parameter >= 0 && graph->declared->parameters[parameter].trainable;
}

bool weft_weight_trains(const weft_graph *graph, const weft_weight *weight) {
    return is_trained(graph, weight->parameter) || is_trained(graph, weight->bias);
}

static bool reads_parameter(const weft_node *node, int32_t parameter) {
    return node->weight != NULL && (node->weight->parameter == parameter || node->weight->bias == parameter);
}

static bool is_apart(const weft_weight *a, const weft_weight *b) {
    return a->is_slice && b->is_slice && (a->first + a->out <= b->first || b->first + b->out <= a->first);
}

/* Returns the outputs of the complete parameter: a matrix, transposed or not, or its bias. */
static int64_t outputs_of(const weft_graph *graph, const weft_weight *weight, int32_t parameter) {
    const weft_parameter *p = &graph->declared->parameters[parameter];
    return weight->transposed && parameter == weight->parameter ? p->dims[1] : p->dims[0];
}

/* True if exactly one node of this segment computes each output of the parameter: one node reads all of it, or disjoint
 * slices cover it. Then each gradient is written directly to its final storage. */
static bool is_read_once(const weft_graph *graph, int32_t parameter) {
    int64_t all = graph->declared->parameters[parameter].dims[0], rows = 0;
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        const weft_weight *weight = graph->nodes[i].weight;
        if (!reads_parameter(&graph->nodes[i], parameter)) continue;
        all = outputs_of(graph, weight, parameter);
        for (int32_t k = 0; k < i; k++)
            if (reads_parameter(&graph->nodes[k], parameter) && !is_apart(weight, graph->nodes[k].weight)) return false;
        rows += weight->is_slice ? weight->out : all;
    }
    return rows == all;
}

static int32_t gradient_storage(weft_lowering *l, int32_t home, int32_t parameter) {
    const weft_parameter *p = &l->graph->declared->parameters[parameter];
    return weft_lower_storage(l, home, parameter, 0, p->numel * weft_dtype_bytes(WEFT_F32));
}

/* Returns the storage of a parameter's gradient. A segment adds its gradient to an earlier segment's as one complete
 * sum. So if a row is used several times here and an earlier gradient exists, the sum is accumulated in scratch. If
 * slices overlap or do not cover the parameter, the storage starts at zero. */
int32_t weft_weight_gradient(weft_lowering *l, const weft_weight *weight, int32_t parameter, int32_t *accumulate) {
    const weft_graph *graph = l->graph;
    int32_t index = 0, *storage = NULL;
    bool adds = false, once = false;
    *accumulate = 0;
    if (!is_trained(graph, parameter)) return 0;
    index = weft_graph_read_index(graph, parameter);
    adds = graph->reads[index].adds;
    once = is_read_once(graph, parameter);
    storage = &l->weight_gradient_of[index];
    *accumulate = once ? adds : *storage != 0 || weight->is_slice;
    if (*storage != 0) return *storage;
    *storage = gradient_storage(l, adds && !once ? WEFT_HOME_WORK : WEFT_HOME_GRADIENT, parameter);
    if (!once && weight->is_slice) weft_lower_zero(l, *storage);
    return *storage;
}

/* Returns the distance of the matrix's rows in elements. In a slice of a transposed matrix they are parts of longer
 * rows. */
static int64_t row_distance(const weft_lowering *l, const weft_weight *weight) {
    return weight->transposed ? outputs_of(l->graph, weight, weight->parameter) : weight->in;
}

/* The weight's rows within the storage of its complete parameter; each has `width` elements of dtype. */
static weft_operand rows_of(const char *name, size_t field, int32_t storage, const weft_weight *weight, int64_t width,
                            int32_t dtype) {
    if (!weight->is_slice) return (weft_operand){name, storage, (uint32_t)field, 0, -1};
    return (weft_operand){name, storage, (uint32_t)field, weft_dtype_span(dtype, weight->first * width),
                          weft_dtype_span(dtype, weight->out * width)};
}

/* The weight's matrix, or its gradient, within the storage of its parameter. */
static weft_operand matrix_of(const weft_lowering *l, const char *name, size_t field, int32_t storage,
                              const weft_weight *weight, int32_t dtype) {
    const int64_t columns = (weight->in - 1) * row_distance(l, weight) + weight->out;
    if (!weight->transposed || !weight->is_slice) return rows_of(name, field, storage, weight, weight->in, dtype);
    return (weft_operand){name, storage, (uint32_t)field, weft_dtype_span(dtype, weight->first),
                          weft_dtype_span(dtype, columns)};
}

void weft_weight_finish_gradients(weft_lowering *l) {
    const weft_graph *graph = l->graph;
    for (int32_t i = 0; i < graph->n_reads; i++) {
        const weft_parameter *parameter = &graph->declared->parameters[graph->reads[i].parameter];
        const int32_t formed = l->weight_gradient_of[i];
        const bool apart = l->pass->storages[formed].home == WEFT_HOME_WORK;
        int32_t slot = 0;
        if (!parameter->trainable || (formed == 0 && graph->reads[i].adds) || (formed != 0 && !apart)) continue;
        slot = gradient_storage(l, WEFT_HOME_GRADIENT, graph->reads[i].parameter);
        if (apart) weft_lower_add(l, slot, slot, formed, parameter->numel, WEFT_F32);
        else weft_lower_zero(l, slot);
    }
}

static weft_matmul product_arguments(const weft_lowering *l, int64_t m, int64_t n, int64_t k) {
    return (weft_matmul){.m = m,
                         .n = n,
                         .k = k,
                         .lda = k,
                         .ldb = n,
                         .ldc = n,
                         .dtype_a = l->graph->dtype,
                         .dtype_b = l->graph->dtype,
                         .dtype_c = l->graph->dtype};
}

void weft_weight_product(weft_lowering *l, const weft_weight *weight, int32_t y, int32_t dtype_y, int32_t x, int64_t m,
                         int64_t stride, int64_t offset) {
    const int64_t size = weft_dtype_bytes(l->graph->dtype);
    weft_matmul args = product_arguments(l, m, weight->out, weight->in);
    args.dtype_b = weft_graph_read_dtype(l->graph, weight->parameter);
    args.dtype_c = dtype_y;
    args.lda = stride;
    args.transpose_b = !weight->transposed; /* W is (out, in) */
    args.ldb = row_distance(l, weight);
    args.has_bias = weight->bias >= 0;
    WEFT_CALL(l, &weft_kernel_matmul, args, WEFT_PART("x", a, x, offset * size, ((m - 1) * stride + weight->in) * size),
              matrix_of(l, "weight", offsetof(weft_matmul, b), weft_lower_parameter(l, weight->parameter), weight,
                        args.dtype_b),
              WEFT_PART("y", c, y, 0, -1),
              rows_of("bias", offsetof(weft_matmul, bias), weft_lower_parameter(l, weight->bias), weight, 1, WEFT_F32));
}

/* dW (+)= dy^T x, or x^T dy where W is transposed. */
static void matrix_gradient(weft_lowering *l, const weft_weight *weight, int32_t dy, weft_value x, int64_t m) {
    const bool turned = weight->transposed;
    const int64_t rows = turned ? weight->in : weight->out, width = turned ? weight->out : weight->in;
    weft_matmul args = product_arguments(l, rows, width, m);
    const int32_t dw = weft_weight_gradient(l, weight, weight->parameter, &args.accumulate);
    if (dw == 0) return;
    args.transpose_a = 1; /* x is (m, rows) */
    args.lda = rows;
    args.ldc = row_distance(l, weight);
    args.dtype_c = WEFT_F32;
    WEFT_CALL(l, &weft_kernel_matmul_dw, args,
              WEFT_PART(turned ? "x" : "dy", a, turned ? weft_lower_value(l, x) : dy, 0, -1),
              WEFT_PART(turned ? "dy" : "x", b, turned ? dy : weft_lower_value(l, x), 0, -1),
              matrix_of(l, "dweight", offsetof(weft_matmul, c), dw, weight, WEFT_F32));
}

static void bias_gradient(weft_lowering *l, const weft_weight *weight, int32_t dy, int64_t m) {
    weft_sum_rows args = {.rows = m, .width = weight->out, .dtype = l->graph->dtype};
    const int32_t dbias = weft_weight_gradient(l, weight, weight->bias, &args.accumulate);
    if (dbias == 0) return;
    WEFT_CALL(l, &weft_kernel_sum_rows, args, WEFT_PART("dy", x, dy, 0, -1),
              rows_of("dbias", offsetof(weft_sum_rows, out), dbias, weight, 1, WEFT_F32));
}

static weft_status linear_infer(const weft_graph *graph, weft_node *node, weft_error *err) {
    const weft_value_record *x = weft_graph_value(graph, node->inputs[0]);
    const weft_status status = weft_infer_matrix(node, err);
    if (status != WEFT_OK) return status;
    if (x->width != node->weight->in)
        return weft_error_set(err, WEFT_E_PLUGIN, "`x` has width %lld; the weight is (%lld, %lld) and requires %lld",
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
    const weft_weight *weight = node->weight;
    const int32_t dy = weft_gradient_of(l, node->output);
    weft_matmul args = product_arguments(l, weft_node_places(l->graph, node), weight->in, weight->out);
    int32_t dx = 0;
    matrix_gradient(l, weight, dy, node->inputs[0], args.m);
    bias_gradient(l, weight, dy, args.m);
    dx = weft_gradient_target(l, node->inputs[0], &args.accumulate);
    if (dx == 0) return;
    args.dtype_b = weft_graph_read_dtype(l->graph, weight->parameter);
    args.transpose_b = weight->transposed;
    args.ldb = row_distance(l, weight);
    WEFT_CALL(l, &weft_kernel_matmul_dx, args, WEFT_PART("dy", a, dy, 0, -1),
              matrix_of(l, "weight", offsetof(weft_matmul, b), weft_lower_parameter(l, weight->parameter), weight,
                        args.dtype_b),
              WEFT_PART("dx", c, dx, 0, -1));
}

const weft_operator weft_operator_linear = {
    .name = "linear", .inputs = {"x"}, WEFT_OPERATOR(linear), .any_places = true};
