/* sum_rows.c: kernel-table slot of a sum over rows. */
#include "row_sums.h"
#include "workspace.h"

static int64_t lay_out_sums(room r, const weft_sum_rows *args, row_sums_call *call) {
    const int64_t rows = size_max(args->rows, 0), width = size_max(args->width, 0);
    call->runs = room_take(&r, row_sums_runs(rows) * RUNS_DISTANCE(width) * 4);
    return room_bytes(&r);
}

int64_t cuda_sum_rows_workspace(const weft_device *device, const weft_sum_rows *args) {
    row_sums_call call = {0};
    (void)device;
    return lay_out_sums(room_at(NULL), args, &call);
}

CUDA_KERNEL(sum_rows, weft_sum_rows) {
    operands c = OPERANDS("sum_rows", weft_sum_rows, args, err);
    row_sums_call call = {.rows = args->rows, .width = args->width, .ld = args->width};
    int64_t bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    call.accumulate = args->accumulate != 0;
    call.dtype = args->dtype;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    operands_size(&c, "rows", args->rows, 0);
    operands_size(&c, "width", args->width, 1);
    call.x = operands_need(&c, args->x, "x", args->rows, args->width, bytes);
    call.out = operands_need(&c, args->out, "out", args->width, 1, 4);
    if (c.status != WEFT_OK) return c.status;
    (void)lay_out_sums(room_at(operands_need_workspace(&c, args->workspace, cuda_sum_rows_workspace(device, args))),
                       args, &call);
    if (c.status != WEFT_OK) return c.status;
    return cuda_judge(row_sums_launch(&call, cuda_stream(device, s)), "sum_rows", err);
}
