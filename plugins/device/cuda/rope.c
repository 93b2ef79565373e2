/* rope.c: kernel-table slot of rotary embeddings. */
#include "rope.h"
#include "cuda.h"

static void check_rope(operands *c, const weft_rope *args, int64_t turned) {
    operands_size(c, "rows", args->rows, 0);
    operands_size(c, "heads", args->heads, 0);
    operands_size(c, "head_dim", args->head_dim, 2);
    operands_size(c, "rotary_dim", args->rotary_dim, 0);
    if (c->status != WEFT_OK || (turned % 2 == 0 && turned <= args->head_dim)) return;
    c->status = weft_error_set(c->err, WEFT_E_HOST,
                               "rope on device cuda: %lld elements of a head of %lld are to be rotated; that should be "
                               "an even number of them.",
                               (long long)turned, (long long)args->head_dim);
}

CUDA_KERNEL(rope, weft_rope) {
    operands c = OPERANDS("rope", weft_rope, args, err);
    const int64_t turned = args->rotary_dim > 0 ? args->rotary_dim : args->head_dim;
    const int64_t width = size_times(args->heads, args->head_dim);
    rope_call call = {.rows = args->rows, .heads = args->heads, .head_dim = args->head_dim, .turned = turned};
    int64_t bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    call.table_rows = args->table_rows;
    call.inverse = args->inverse != 0;
    call.accumulate = args->accumulate != 0;
    call.dtype = args->dtype;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    check_rope(&c, args, turned);
    call.x = operands_need(&c, args->x, "x", args->rows, width, bytes);
    call.y = operands_need(&c, args->y, "y", args->rows, width, bytes);
    call.positions = operands_need(&c, args->positions, "positions", args->rows, 1, 4);
    call.table = operands_need(&c, args->table, "table", args->table_rows, turned, 4);
    if (c.status != WEFT_OK) return c.status;
    return cuda_judge(rope_launch(&call, cuda_stream(device, s)), "rope", err);
}
