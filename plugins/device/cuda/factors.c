/* factors.c: kernel-table slots multiply, multiply_backward and dropout. */
#include "factors.h"
#include "workspace.h"

static factors_call look_up_factors(operands *c, const weft_multiply *args) {
    factors_call call = {.rows = args->rows, .width = args->width, .part = 1};
    call.dtype = args->dtype;
    (void)operands_dtype(c, "dtype", args->dtype);
    operands_size(c, "rows", args->rows, 0);
    operands_size(c, "width", args->width, 1);
    operands_parts(c, args->parts, args->width);
    if (c->status == WEFT_OK) call.part = args->width / args->parts;
    call.x = operands_need(c, args->x, "x", args->rows, args->width, cell_bytes(call.dtype));
    call.by = operands_need(c, args->by, "by", args->parts, 1, 4);
    call.over = operands_may(c, args->over, "over", args->parts, 1, 4);
    call.shift = operands_may(c, args->shift, "shift", args->parts, 1, 4);
    operands_shift(c, args);
    return call;
}

CUDA_KERNEL(multiply, weft_multiply) {
    operands c = OPERANDS("multiply", weft_multiply, args, err);
    factors_call call;
    if (c.status != WEFT_OK) return c.status;
    call = look_up_factors(&c, args);
    call.y = operands_need(&c, args->y, "y", args->rows, args->width, cell_bytes(call.dtype));
    if (c.status != WEFT_OK) return c.status;
    return cuda_judge(factors_launch(&call, cuda_stream(device, s)), "multiply", err);
}

static int64_t lay_out_sums(room r, const weft_multiply *args, factor_sums_call *call) {
    call->runs = room_take(&r, factor_sums_runs(size_max(args->rows, 0)) * size_max(args->width, 0) * 4);
    return room_bytes(&r);
}

int64_t cuda_multiply_backward_workspace(const weft_device *device, const weft_multiply *args) {
    factor_sums_call call = {0};
    (void)device;
    return lay_out_sums(room_at(NULL), args, &call);
}

/* Computes the sums first, because dx may alias dy. */
CUDA_KERNEL(multiply_backward, weft_multiply) {
    operands c = OPERANDS("multiply_backward", weft_multiply, args, err);
    const cudaStream_t stream = cuda_stream(device, s);
    factor_sums_call sums = {.rows = args->rows, .width = args->width};
    cudaError_t code = cudaSuccess;
    factors_call call;
    void *workspace = NULL;
    if (c.status != WEFT_OK) return c.status;
    call = look_up_factors(&c, args);
    sums.a = operands_need(&c, args->dy, "dy", args->rows, args->width, cell_bytes(call.dtype));
    sums.b = call.x;
    call.y = operands_may(&c, args->dx, "dx", args->rows, args->width, cell_bytes(call.dtype));
    sums.out = operands_may(&c, args->dby, "dby", args->parts, 1, 4);
    if (c.status != WEFT_OK) return c.status;
    workspace = operands_need_workspace(&c, args->workspace, cuda_multiply_backward_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    (void)lay_out_sums(room_at(workspace), args, &sums);
    sums.part = call.part;
    sums.over = call.over;
    sums.shift = call.shift;
    sums.dtype = call.dtype;
    sums.accumulate = args->accumulate_dby != 0;
    call.x = sums.a;
    call.shift = NULL;
    call.accumulate = args->accumulate_dx != 0;
    if (sums.out != NULL) code = factor_sums_launch(&sums, stream);
    if (code == cudaSuccess && call.y != NULL) code = factors_launch(&call, stream);
    return cuda_judge_call(code, "a launch", "multiply_backward", err);
}

CUDA_KERNEL(dropout, weft_dropout) {
    operands c = OPERANDS("dropout", weft_dropout, args, err);
    dropout_call call = {.batch = args->batch, .row = args->row, .seed = args->seed, .site = (uint32_t)args->site};
    int64_t bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    operands_dropout(&c, args);
    call.x = operands_need(&c, args->x, "x", args->batch, args->row, bytes);
    call.y = operands_need(&c, args->y, "y", args->batch, args->row, bytes);
    call.first = operands_need(&c, args->first, "first", 1, 1, 8);
    if (c.status != WEFT_OK) return c.status;
    call.least = operands_least(args->p);
    call.factor = operands_kept(args->p);
    call.accumulate = args->accumulate != 0;
    call.dtype = args->dtype;
    return cuda_judge(dropout_launch(&call, cuda_stream(device, s)), "dropout", err);
}
