/* ---- an operator of its own: y = x^2 + x of each element; tests/conform/test_mutants.sh puts it into a model ---- */

typedef struct square_shape {
    int64_t rows, length, width;
} square_shape;

static weft_status square_forward(const weft_custom_call *call, weft_error *err) {
    const square_shape *of = (const square_shape *)call->args;
    const float *x = (const float *)call->kernels->host_view(call->device, call->inputs[0]);
    float *y = (float *)call->kernels->host_view(call->device, call->output);
    const int64_t n = of->rows * of->length * of->width;
    int64_t i;
    if (x == NULL || y == NULL) return weft_error_set(err, WEFT_E_UNSUPPORTED, "square needs a device of the host's");
    for (i = 0; i < n; i++) y[i] = x[i] * x[i] + x[i];
    return WEFT_OK;
}

static weft_status square_backward(const weft_custom_call *call, weft_error *err) {
    const square_shape *of = (const square_shape *)call->args;
    const float *x = (const float *)call->kernels->host_view(call->device, call->inputs[0]);
    const float *dy = (const float *)call->kernels->host_view(call->device, call->d_output);
    float *dx = (float *)call->kernels->host_view(call->device, call->d_inputs[0]);
    const int64_t n = of->rows * of->length * of->width;
    int64_t i;
    if (x == NULL || dy == NULL || dx == NULL)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "square needs a device of the host's");
    for (i = 0; i < n; i++) dx[i] = (call->accumulate[0] != 0 ? dx[i] : 0.0f) + dy[i] * (2 * x[i] + 1);
    return WEFT_OK;
}

static const weft_custom_op square_op = {
    (uint32_t)sizeof square_op, 0, "square", 1, 0, square_forward, square_backward, 1u << WEFT_F32, 0};

static weft_value square(weft_graph *g, const weft_ops *ops, weft_value x) {
    weft_graph_info info;
    square_shape of;
    memset(&info, 0, sizeof info);
    info.struct_size = (uint32_t)sizeof info;
    ops->info(g, &info);
    of.rows = info.rows;
    of.length = info.length;
    of.width = ops->width(g, x);
    return ops->custom(g, &square_op, &x, 1, of.width, &of, sizeof of);
}
