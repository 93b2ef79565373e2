/* host/graph/kernels.c: see kernels.h. */
#include "graph/kernels.h"

static weft_custom_call custom_call(const weft_kernel_run *run, const weft_custom_args *args) {
    return (weft_custom_call){.struct_size = (uint32_t)sizeof(weft_custom_call),
                              .device = run->device,
                              .kernels = run->kernels,
                              .stream = run->stream,
                              .dtype = args->dtype,
                              .args = args->args,
                              .inputs = args->inputs,
                              .output = args->output};
}

weft_status weft_kernel_invoke(const weft_kernel *kernel, const weft_kernel_run *run, weft_kernel_args *args,
                               weft_error *err) {
    const weft_device_plugin *device = run->kernels;
    weft_custom_call call;
    switch (kernel->slot) {
#define INVOKE(name, type)                                                                                             \
    case WEFT_SLOT_##name:                                                                                             \
        if (!WEFT_HAS(device, name) || device->name == NULL) break;                                                    \
        return device->name(run->device, run->stream, &args->name, err);
        WEFT_DEVICE_KERNELS(INVOKE)
    case WEFT_SLOT_copy:
        return device->copy(run->device, run->stream, args->copy.to, args->copy.from, args->copy.bytes, err);
    case WEFT_SLOT_zero: return device->fill(run->device, run->stream, args->zero.to, 0u, args->zero.words, err);
    case WEFT_SLOT_custom: call = custom_call(run, &args->custom); return args->custom.op->forward(&call, err);
    case WEFT_SLOT_custom_backward:
        call = custom_call(run, &args->custom);
        call.d_output = args->custom.d_output;
        call.d_inputs = args->custom.d_inputs;
        call.accumulate = args->custom.accumulate;
        return args->custom.op->backward(&call, err);
    }
    return weft_error_set(err, WEFT_E_UNSUPPORTED, "this device has no kernel %s. Fix: use a newer device plugin",
                          kernel->name);
}

int64_t weft_kernel_workspace(const weft_kernel *kernel, const weft_kernel_run *run, const weft_kernel_args *args,
                              size_t *field) {
    const weft_device_plugin *device = run->kernels;
    *field = 0;
    switch ((int)kernel->slot) {
#define WORKSPACE(name, type)                                                                                          \
    case WEFT_SLOT_##name:                                                                                             \
        if (!WEFT_HAS(device, name##_workspace) || device->name##_workspace == NULL) return 0;                         \
        *field = offsetof(type, workspace);                                                                            \
        return device->name##_workspace(run->device, &args->name);
        WEFT_DEVICE_WORKSPACES(WORKSPACE)
    default: return 0;
    }
}

/* ---- costs of calls ---- */

int32_t weft_kernel_products(const weft_kernel *kernel, const weft_kernel_args *args,
                             weft_product_shape out[WEFT_CALL_PRODUCTS]) {
    const weft_matmul *m = &args->matmul;
    const weft_head *h = &args->head_loss;
    const bool gradients = kernel->slot == WEFT_SLOT_head_loss_grad, head = kernel->slot == WEFT_SLOT_head_loss;
    const bool dx = gradients && !kernel->no_dx, dw = gradients && !kernel->no_dw;
    int32_t n = 0;
    if (kernel->slot == WEFT_SLOT_matmul)
        out[n++] = (weft_product_shape){m->m, m->n, m->k, m->transpose_a != 0, m->transpose_b != 0};
    if (head || gradients) out[n++] = (weft_product_shape){h->rows, h->vocab, h->width, false, true}; /* x W^T */
    if (dx) out[n++] = (weft_product_shape){h->rows, h->width, h->vocab, false, false};               /* dlogits W */
    if (dw) out[n++] = (weft_product_shape){h->vocab, h->width, h->rows, true, false};                /* dlogits^T x */
    return n;
}

/* Two matmuls of (T, d) by (d, S) per head, of the (query, key) pairs with attention: half of (T, T), and fewer with a
 * window. With a cache, the state's length or the window is an upper bound, because the number of past positions
 * grows. */
static double attention_flops(const weft_attention *a) {
    const double length = (double)a->length;
    const double reach = a->cache_rows > 0 ? (double)a->cache_rows : length;
    const double window = a->window > 0 && (double)a->window < reach ? (double)a->window : reach;
    const double pairs = a->cache_rows > 0 ? length * window : length * window - window * window / 2.0;
    return 4.0 * (double)a->batch * (double)a->heads * (double)a->head_dim * pairs;
}

/* The two matmuls over a prefix, which every query sees completely. */
static double prefix_flops(const weft_prefix *a) {
    return 4.0 * (double)a->batch * (double)a->length * (double)a->heads * (double)a->head_dim * (double)a->places;
}

/* FLOPs outside the matrix library. Backward of attention has twice those of forward, for dv, dp, dq, dk; recomputed
 * scores are not counted. */
static double other_flops(const weft_kernel *kernel, const weft_kernel_args *args) {
    const weft_row_norms *norms = &args->row_norms;
    switch ((int)kernel->slot) {
    case WEFT_SLOT_attention: return attention_flops(&args->attention);
    case WEFT_SLOT_attention_backward: return 2.0 * attention_flops(&args->attention_backward);
    case WEFT_SLOT_prefix: return prefix_flops(&args->prefix);
    case WEFT_SLOT_prefix_backward: return 2.0 * prefix_flops(&args->prefix_backward);
    case WEFT_SLOT_row_norms: /* U D. The sum and its squares are read along with W. */
        return 2.0 * (double)norms->rows * (double)norms->width * (double)(norms->rank + 1);
    default: return 0.0;
    }
}

double weft_kernel_operations(const weft_kernel *kernel, const weft_kernel_args *args) {
    weft_product_shape products[WEFT_CALL_PRODUCTS];
    const int32_t n = weft_kernel_products(kernel, args, products);
    double sum = other_flops(kernel, args);
    for (int32_t i = 0; i < n; i++) sum += 2.0 * (double)products[i].m * (double)products[i].n * (double)products[i].k;
    return sum;
}

double weft_kernel_traffic(const weft_kernel *kernel, const weft_kernel_args *args) {
    const weft_embedding *a = &args->embedding;
    if (kernel->slot != WEFT_SLOT_embedding) return 0.0;
    return (double)a->rows *
           ((double)a->width * (double)(weft_dtype_bytes(a->dtype) + weft_dtype_bytes(a->dtype_table)) + 4.0);
}

#define KERNEL(id, type) const weft_kernel weft_kernel_##id = {.name = #id, .slot = WEFT_SLOT_##id};
WEFT_DEVICE_KERNELS(KERNEL)
KERNEL(copy, weft_copy_args)
KERNEL(zero, weft_zero_args)
#define VARIANT(id, of, ...) const weft_kernel weft_kernel_##id = {.name = #of, .slot = WEFT_SLOT_##of, __VA_ARGS__};
VARIANT(matmul_dx, matmul, .no_dw = true)
VARIANT(matmul_dw, matmul, .no_dx = true)
VARIANT(sum_matrix, sum_rows, .no_dx = true)
VARIANT(head_loss_dx, head_loss_grad, .no_dw = true)
VARIANT(head_loss_dw, head_loss_grad, .no_dx = true)
VARIANT(head_loss_dbias, head_loss_grad, .no_dx = true, .no_dw = true)
const weft_kernel weft_kernel_custom = {.name = "forward", .slot = WEFT_SLOT_custom};
const weft_kernel weft_kernel_custom_backward = {.name = "backward", .slot = WEFT_SLOT_custom_backward};
