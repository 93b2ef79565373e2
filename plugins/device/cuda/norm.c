/* norm.c: kernel-table slots `norm` and `norm_backward`. */
#include "norm.h"
#include "row_sums.h"
#include "workspace.h"

static void check_norm_form(operands *c, int32_t form) {
    if (c->status != WEFT_OK || form == WEFT_NORM_RMS || form == WEFT_NORM_LAYER) return;
    c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                               "%s on device cuda: form %d is not known; RMSNorm (0) and LayerNorm (1) are.", c->kernel,
                               form);
}

static norm_call look_up_norm(operands *c, const weft_norm *args) {
    norm_call call = {.rows = args->rows, .width = args->width, .eps = (float)args->eps};
    const int64_t bytes = operands_dtype(c, "dtype", args->dtype);
    call.layer = args->form == WEFT_NORM_LAYER;
    call.from_one = args->gain_from_one != 0;
    call.dtype = args->dtype;
    check_norm_form(c, args->form);
    operands_size(c, "rows", args->rows, 0);
    operands_size(c, "width", args->width, 1);
    call.x = operands_need(c, args->x, "x", args->rows, args->width, bytes);
    call.gain = operands_need(c, args->gain, "gain", args->width, 1, 4);
    call.rstd = operands_may(c, args->rstd, "rstd", args->rows, 1, 4);
    if (call.layer) call.mean = operands_may(c, args->mean, "mean", args->rows, 1, 4);
    return call;
}

/* ---- fusion with a pending add ---- */

static bool lie_apart(const void *a, int64_t bytes_a, const void *b, int64_t bytes_b) {
    const uintptr_t at_a = (uintptr_t)a, at_b = (uintptr_t)b;
    return a == NULL || b == NULL || at_a + (uintptr_t)bytes_a <= at_b || at_b + (uintptr_t)bytes_b <= at_a;
}

/* True if fusing is safe: the norm's other outputs do not overlap the add's operands, and its other inputs do not
 * overlap the sum. y may alias an operand of the add, because each thread reads an element before it overwrites it. */
static bool keeps_apart(const norm_call *call, const add_call *add) {
    const int64_t bytes = add->n * cell_bytes(add->dtype), row = call->width * 4, column = call->rows * 4;
    const void *const of_add[] = {add->a, add->b, add->y};
    for (int i = 0; i < 3; i++) {
        if (call->y != of_add[i] && !lie_apart(call->y, bytes, of_add[i], bytes)) return false;
        if (!lie_apart(call->rstd, column, of_add[i], bytes) || !lie_apart(call->mean, column, of_add[i], bytes))
            return false;
    }
    return lie_apart(call->gain, row, add->y, bytes) && lie_apart(call->bias, row, add->y, bytes);
}

/* Fuses the pending add if it is next in this stream and this is a norm of its complete sum. */
static void take_waiting(norm_call *call, cuda_waiting *waiting, cudaStream_t stream) {
    const add_call *add = &waiting->call;
    if (!waiting->is_there || stream != waiting->stream || call->residual != NULL || call->x != add->y ||
        add->b == NULL || call->dtype != add->dtype || call->rows * call->width != add->n || !keeps_apart(call, add))
        return;
    call->x = add->a;
    call->residual = add->b;
    call->sum = add->y;
    waiting->is_there = false;
}

/* ---- forward ---- */

CUDA_KERNEL(norm, weft_norm) {
    operands c = OPERANDS("norm", weft_norm, args, err);
    norm_call call;
    int64_t bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    call = look_up_norm(&c, args);
    bytes = cell_bytes(call.dtype);
    if (call.layer) call.bias = operands_need(&c, args->bias, "bias", args->width, 1, 4);
    call.y = operands_need(&c, args->y, "y", args->rows, args->width, bytes);
    call.residual = operands_may(&c, args->residual, "residual", args->rows, args->width, bytes);
    if (call.residual != NULL) call.sum = operands_need(&c, args->sum, "sum", args->rows, args->width, bytes);
    if (c.status != WEFT_OK) return c.status;
    take_waiting(&call, &device->waiting, cuda_stream_named(device, s));
    return cuda_judge(norm_launch(&call, cuda_stream(device, s)), "norm", err);
}

/* ---- backward ---- */

static int64_t runs_of(const weft_norm *args) {
    return norm_runs(size_max(args->rows, 0), size_max(args->width, 1), args->dtype);
}

/* Lays out the workspace, or computes its size. Ignores refs. */
static int64_t lay_out_norm(room r, const weft_norm *args, norm_call *call) {
    const int64_t bytes = runs_of(args) * RUNS_DISTANCE(size_max(args->width, 0)) * 4;
    call->gain_runs = room_take(&r, bytes);
    call->bias_runs = room_take(&r, args->form == WEFT_NORM_LAYER ? bytes : 0);
    return room_bytes(&r);
}

int64_t cuda_norm_backward_workspace(const weft_device *device, const weft_norm *args) {
    norm_call call = {0};
    (void)device;
    return lay_out_norm(room_at(NULL), args, &call);
}

static cudaError_t norm_backward_all(norm_call *call, float *dgain, float *dbias, const weft_norm *args,
                                     cudaStream_t stream) {
    const runs_call gain = {dgain, call->gain_runs, runs_of(args), args->width, args->accumulate_dgain != 0};
    const runs_call bias = {dbias, call->bias_runs, runs_of(args), args->width, args->accumulate_dbias != 0};
    cudaError_t code = cudaSuccess;
    if (dgain == NULL) call->gain_runs = NULL;
    if (dbias == NULL) call->bias_runs = NULL;
    code = norm_backward_launch(call, stream);
    if (code == cudaSuccess && dgain != NULL) code = runs_launch(&gain, stream);
    if (code == cudaSuccess && dbias != NULL) code = runs_launch(&bias, stream);
    return code;
}

/* Replaces the pending copy if it is next in this stream and the gradient is added to all of it. x and dy must not
 * overlap its destination, which is dx, and the other outputs must not overlap its source. */
static void take_copy(norm_call *call, cuda_waiting *waiting, cudaStream_t stream, const float *dgain,
                      const float *dbias) {
    const add_call *copy = &waiting->call;
    const int64_t row = call->width * 4;
    const int64_t runs = norm_runs(call->rows, call->width, call->dtype) * RUNS_DISTANCE(call->width) * 4;
    if (!waiting->is_there || stream != waiting->stream || copy->b != NULL || call->residual == NULL ||
        call->dx != copy->y || call->rows * call->width * cell_bytes(call->dtype) != copy->n ||
        !lie_apart(call->x, copy->n, copy->y, copy->n) || !lie_apart(call->dy, copy->n, copy->y, copy->n) ||
        !lie_apart(dgain, row, copy->a, copy->n) || !lie_apart(dbias, row, copy->a, copy->n) ||
        !lie_apart(call->gain_runs, runs, copy->a, copy->n) || !lie_apart(call->bias_runs, runs, copy->a, copy->n))
        return;
    call->residual = copy->a;
    waiting->is_there = false;
}

CUDA_KERNEL(norm_backward, weft_norm) {
    operands c = OPERANDS("norm_backward", weft_norm, args, err);
    float *dgain = NULL, *dbias = NULL;
    void *workspace = NULL;
    norm_call call;
    int64_t bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    call = look_up_norm(&c, args);
    bytes = cell_bytes(call.dtype);
    call.dy = operands_need(&c, args->dy, "dy", args->rows, args->width, bytes);
    call.dx = operands_may(&c, args->dx, "dx", args->rows, args->width, bytes);
    dgain = operands_may(&c, args->dgain, "dgain", args->width, 1, 4);
    if (call.layer) dbias = operands_may(&c, args->dbias, "dbias", args->width, 1, 4);
    if (call.layer && call.mean == NULL) call.rstd = NULL;
    if (args->accumulate_dx != 0) call.residual = call.dx;
    if (c.status != WEFT_OK) return c.status;
    workspace = operands_need_workspace(&c, args->workspace, cuda_norm_backward_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    (void)lay_out_norm(room_at(workspace), args, &call);
    take_copy(&call, &device->waiting, cuda_stream_named(device, s), dgain, dbias);
    return cuda_judge(norm_backward_all(&call, dgain, dbias, args, cuda_stream(device, s)), "norm_backward", err);
}
