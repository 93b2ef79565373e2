/* add.c: kernel-table slot y = a + b, and the launch of deferred calls.
 *
 * If a norm of y follows, its kernel can compute the sum too. The sum is then written once and not read again, and one
 * launch is saved. A model's segments end in an add and begin with a norm, so no single call contains both. Therefore
 * an add is only deferred here. A norm of its sum fuses it (norm.c). Any other work queued in its stream, an event
 * record or a wait launches it first through cuda_stream; creating or destroying a handle launches it through
 * cuda_enter. The delay is not observable: the work of a stream keeps its order, and other streams synchronize only
 * through events of this stream. Work in other streams, for example of a communicator when data arrives, therefore has
 * no influence. The number of kernels per step depends only on its calls, not on time. A launch error is reported as
 * the add's by the call that launched it.
 *
 * A copy within the device is deferred in the same way (copies.c), if no call is. The backward of a norm that adds to
 * the copy reads its source instead: the gradient around a block is not copied. */
#include "cuda.h"

cudaError_t cuda_launch_waiting(const weft_device *device) {
    cuda_waiting *w = &device->first.device->waiting;
    if (!w->is_there) return cudaSuccess;
    w->is_there = false;
    if (w->call.b == NULL) return cuda_move(w->call.y, w->call.a, w->call.n, cudaMemcpyDeviceToDevice, w->stream);
    return add_launch(&w->call, w->stream);
}

void cuda_settle_waiting(const weft_device *device) {
    const cuda_waiting *w = &device->first.device->waiting;
    const bool copies = w->call.b == NULL;
    if (w->is_there)
        cuda_put_off(cuda_launch_waiting(device), copies ? "cudaMemcpyAsync" : "add_launch", copies ? "copy" : "add");
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
    cuda_settle_waiting(device); /* of another stream: at most one is pending */
    c.status = cuda_judge_call(cudaSuccess, "cudaSetDevice", "add", err); /* or a deferred failure */
    if (c.status == WEFT_OK) device->waiting = next;
    return c.status;
}
