/* activation.c: kernel-table slots of an MLP's activation and its backward. */
#include "activation.h"
#include "cuda.h"

static void check_activation(operands *c, const weft_activation *args) {
    if (c->status == WEFT_OK && (args->form < WEFT_SILU || args->form > WEFT_GELU_TANH))
        c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                                   "%s on device cuda: form %d is not known; SiLU (0), GELU (1) and GELU by tanh (2) "
                                   "are.",
                                   c->kernel, args->form);
    if (c->status == WEFT_OK && args->up.buffer == NULL && args->dup.buffer != NULL)
        c->status = weft_error_set(
            c->err, WEFT_E_HOST,
            "%s on device cuda: operand dup is set, and operand up, which it is the gradient of, is missing.",
            c->kernel);
}

static activation_call look_up_activation(operands *c, const weft_activation *args) {
    activation_call call = {.n = args->n, .form = args->form, .dtype = args->dtype};
    const int64_t bytes = operands_dtype(c, "dtype", args->dtype);
    check_activation(c, args);
    call.x = operands_need(c, args->x, "x", args->n, 1, bytes);
    call.up = operands_may(c, args->up, "up", args->n, 1, bytes);
    return call;
}

CUDA_KERNEL(activation, weft_activation) {
    operands c = OPERANDS("activation", weft_activation, args, err);
    activation_call call;
    if (c.status != WEFT_OK) return c.status;
    call = look_up_activation(&c, args);
    call.y = operands_need(&c, args->y, "y", args->n, 1, cell_bytes(call.dtype));
    if (c.status != WEFT_OK) return c.status;
    return cuda_judge(activation_launch(&call, cuda_stream(device, s)), "activation", err);
}

CUDA_KERNEL(activation_backward, weft_activation) {
    operands c = OPERANDS("activation_backward", weft_activation, args, err);
    activation_call call;
    int64_t bytes = 0;
    if (c.status != WEFT_OK) return c.status;
    call = look_up_activation(&c, args);
    bytes = cell_bytes(call.dtype);
    call.dy = operands_need(&c, args->dy, "dy", args->n, 1, bytes);
    call.dx = operands_may(&c, args->dx, "dx", args->n, 1, bytes);
    call.dup = operands_may(&c, args->dup, "dup", args->n, 1, bytes);
    call.accumulate_dx = args->accumulate_dx != 0;
    call.accumulate_dup = args->accumulate_dup != 0;
    if (c.status != WEFT_OK) return c.status;
    return cuda_judge(activation_backward_launch(&call, cuda_stream(device, s)), "activation_backward", err);
}
