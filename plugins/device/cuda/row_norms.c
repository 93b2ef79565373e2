/* row_norms.c: kernel-table slot of row norms, which need no workspace. */
#include "row_norms.h"
#include "../common/matrices.h"
#include "cuda.h"

int64_t cuda_row_norms_workspace(const weft_device *device, const weft_row_norms *args) {
    (void)device;
    (void)args;
    return 0;
}

static const void *look_up_w(operands *c, const weft_row_norms *args) {
    if (matrices_is_packed(args->dtype_w))
        return matrices_packed(c, args->w, "w", args->dtype_w, args->rows, args->width, args->width);
    return operands_need(c, args->w, "w", args->rows, args->width, operands_dtype(c, "dtype_w", args->dtype_w));
}

CUDA_KERNEL(row_norms, weft_row_norms) {
    operands c = OPERANDS("row_norms", weft_row_norms, args, err);
    row_norms_call call = {.rows = args->rows, .width = args->width, .rank = args->rank, .factor = (float)args->factor};
    int64_t bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    operands_size(&c, "rows", args->rows, 0);
    operands_size(&c, "width", args->width, 1);
    operands_size(&c, "rank", args->rank, 0);
    call.dtype = args->dtype;
    call.dtype_w = args->dtype_w;
    call.w = look_up_w(&c, args);
    if (args->rank > 0) call.down = operands_need(&c, args->down, "down", args->rank, args->width, bytes);
    if (args->rank > 0) call.up = operands_need(&c, args->up, "up", args->rows, args->rank, bytes);
    call.out = operands_need(&c, args->out, "out", args->rows, 1, 4);
    if (c.status != WEFT_OK) return c.status;
    return cuda_judge(row_norms_launch(&call, cuda_stream(device, s)), "row_norms", err);
}
