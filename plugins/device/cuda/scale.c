/* scale.c: kernel-table slot y = or += c(factor x). */
#include "scale.h"
#include "cuda.h"

CUDA_KERNEL(scale, weft_scale) {
    operands c = OPERANDS("scale", weft_scale, args, err);
    scale_call call = {.n = args->n, .factor = (float)args->factor, .cap = (float)args->cap};
    int64_t bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    call.accumulate = args->accumulate != 0;
    call.dtype = args->dtype;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    call.x = operands_need(&c, args->x, "x", args->n, 1, bytes);
    call.y = operands_need(&c, args->y, "y", args->n, 1, bytes);
    if (c.status != WEFT_OK) return c.status;
    return cuda_judge(scale_launch(&call, cuda_stream(device, s)), "scale", err);
}
