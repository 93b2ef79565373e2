/* add.c: the slot of y = a + b. */
#include "add.h"
#include "cuda.h"

CUDA_KERNEL(add, weft_add) {
    operands c = OPERANDS("add", weft_add, args, err);
    add_call call = {.n = args->n, .dtype = args->dtype};
    int64_t bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    call.a = operands_need(&c, args->a, "a", args->n, 1, bytes);
    call.b = operands_need(&c, args->b, "b", args->n, 1, bytes);
    call.y = operands_need(&c, args->y, "y", args->n, 1, bytes);
    if (c.status != WEFT_OK) return c.status;
    return cuda_judge(add_launch(&call, cuda_stream(device, s)), "add", err);
}
