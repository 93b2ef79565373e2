/* add.c: the slot of y = a + b.
 *
 * Where a norm of y comes next, its kernel can form the sum as well: then that is written once and not read again,
 * and one launch is saved. Segments of a model end in an add and begin with a norm, so the two are never in one
 * call. That is why an add only waits here: a norm of its sum takes it (norm.c), and whatever else is queued in its
 * stream, marks it or waits for it launches it first, by cuda_stream, as does all that makes or ends something, by
 * cuda_enter. Nobody can tell: what is queued runs in its stream's order either way, and what lies in other streams
 * is held back by events of this one alone. So it does not matter when something is queued in those, as a
 * communicator does once bytes have come, and how many kernels a step launches depends on its calls and not on time.
 * What the launch answers is told as the add's by the call that made it. */
#include "cuda.h"

cudaError_t cuda_launch_waiting(const weft_device *device) {
    cuda_waiting *w = &device->first.device->waiting;
    if (!w->is_there) return cudaSuccess;
    w->is_there = false;
    return add_launch(&w->call, w->stream);
}

void cuda_settle_waiting(const weft_device *device) {
    if (device->first.device->waiting.is_there) cuda_put_off(cuda_launch_waiting(device), "add_launch", "add");
}

CUDA_KERNEL(add, weft_add) {
    operands c = OPERANDS("add", weft_add, args, err);
    cuda_waiting next = {.is_there = args->n > 0, .call = {.n = args->n, .dtype = args->dtype}};
    int64_t bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    bytes = operands_dtype(&c, "dtype", args->dtype);
    next.call.a = operands_need(&c, args->a, "a", args->n, 1, bytes);
    next.call.b = operands_need(&c, args->b, "b", args->n, 1, bytes);
    next.call.y = operands_need(&c, args->y, "y", args->n, 1, bytes);
    if (c.status != WEFT_OK) return c.status;
    next.stream = cuda_stream(device, s);
    cuda_settle_waiting(device);                                          /* of another stream: one alone can wait */
    c.status = cuda_judge_call(cudaSuccess, "cudaSetDevice", "add", err); /* or what was put off until now */
    if (c.status == WEFT_OK) device->waiting = next;
    return c.status;
}
