/* square_sum.c: kernel-table slot of sums of squares. */
#include "square_sum.h"
#include "workspace.h"

/* True if there is a table of extents. Workspace queries ignore refs, so a positive count counts as a table. */
static bool has_extents(const weft_square_sum *args) {
    return args->extents.buffer != NULL || args->n_extents > 0;
}

/* Computes a call's sizes, and lays out its workspace or computes its size. Without a table, one extent covers x. The
 * extents' lengths are in device memory, so each may end with a partial unit. */
static int64_t lay_out_squares(room r, const weft_square_sum *args, squares_call *call) {
    const int64_t n = size_max(args->n, 0);
    call->n = n;
    call->is_f64 = args->dtype == WEFT_F64;
    call->is_cells = args->cell > 0;
    call->unit = call->is_f64 ? 1 : call->is_cells ? args->cell : SQUARE_SPAN;
    call->n_extents = has_extents(args) ? size_max(args->n_extents, 0) : 1;
    call->most_units = n / call->unit + (call->is_f64 ? 0 : call->n_extents);
    call->first = room_take(&r, (call->n_extents + 2) * 8);
    call->sums = room_take(&r, call->is_cells ? 0 : call->most_units * 8);
    return room_bytes(&r);
}

int64_t cuda_square_sum_workspace(const weft_device *device, const weft_square_sum *args) {
    squares_call call = {0};
    (void)device;
    return lay_out_squares(room_at(NULL), args, &call);
}

static void check_cell(operands *c, const weft_square_sum *args) {
    const int64_t blocks = args->cell / SQUARE_BLOCK;
    if (c->status != WEFT_OK || args->cell == 0) return;
    if (args->dtype != WEFT_F64 && args->cell % SQUARE_BLOCK == 0 && args->cell > 0 && args->cell <= SQUARE_SPAN &&
        (blocks & (blocks - 1)) == 0) {
        return;
    }
    c->status = weft_error_set(c->err, WEFT_E_HOST,
                               "%s on device cuda: cells of %lld elements; 64 * 2^k are possible, at most %d, of fp32.",
                               c->kernel, (long long)args->cell, SQUARE_SPAN);
}

/* Returns the elements from a looked-up operand to its buffer's end. */
static int64_t elements_behind(weft_ref ref, int64_t size) {
    return (ref.buffer->size - ref.offset) / size;
}

/* Looks up x and out: the exact sizes without a table, otherwise up to the ends of their buffers. */
static void look_up_squares(squares_call *call, operands *c, const weft_square_sum *args) {
    const int64_t size = call->is_f64 ? 8 : 4, sums = call->is_cells ? size_ceil_div(args->n, args->cell) : 1;
    const bool table = has_extents(args);
    call->x = operands_need(c, args->x, "x", table ? 0 : args->n, 1, size);
    call->out = operands_need(c, args->out, "out", table ? 0 : sums, 1, 8);
    if (table) {
        call->stride = args->extent_stride;
        call->extents = operands_need_rows(c, args->extents, "extents", args->n_extents, args->extent_stride,
                                           WEFT_SIZE_1_0(weft_extent));
    }
    if (c->status != WEFT_OK) return;
    call->all = (weft_extent){.struct_size = sizeof call->all, .length = args->n};
    call->x_limit = elements_behind(args->x, size);
    call->out_limit = elements_behind(args->out, 8);
}

CUDA_KERNEL(square_sum, weft_square_sum) {
    operands c = OPERANDS("square_sum", weft_square_sum, args, err);
    squares_call call = {0};
    void *workspace = NULL;
    if (c.status != WEFT_OK) return c.status;
    operands_size(&c, "n", args->n, 0);
    operands_size(&c, "n_extents", args->n_extents, 0);
    check_cell(&c, args);
    if (c.status != WEFT_OK) return c.status;
    workspace = operands_need_workspace(&c, args->workspace, cuda_square_sum_workspace(device, args));
    (void)lay_out_squares(room_at(workspace), args, &call);
    look_up_squares(&call, &c, args);
    if (c.status != WEFT_OK) return c.status;
    return cuda_judge(squares_launch(&call, cuda_stream(device, s)), "square_sum", err);
}
