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

static int32_t matmul_products(const weft_kernel *kernel, const weft_kernel_args *args,
                               weft_product_shape out[WEFT_CALL_PRODUCTS]) {
    (void)kernel;
    const weft_matmul *a = &args->matmul;
    out[0] = (weft_product_shape){a->m, a->n, a->k, a->transpose_a != 0, a->transpose_b != 0};
    return 1;
}

/* Returns the number of (query, key) pairs with attention: half of (T, T), and fewer with a window. With a cache, the
 * state's length or the window is an upper bound, because the number of past positions grows. */
static double attention_pairs(const weft_attention *a) {
    const double length = (double)a->length;
    const double reach = a->cache_rows > 0 ? (double)a->cache_rows : length;
    const double window = a->window > 0 && (double)a->window < reach ? (double)a->window : reach;
    return a->cache_rows > 0 ? length * window : length * window - window * window / 2.0;
}

/* Two matmuls of (T, d) by (d, S) per head. */
static double attention_flops(const weft_kernel_args *args) {
    const weft_attention *a = &args->attention;
    return 4.0 * (double)a->batch * (double)a->heads * (double)a->head_dim * attention_pairs(a);
}

/* The two matmuls over a prefix, which every query sees completely. */
static double prefix_flops(const weft_kernel_args *args) {
    const weft_prefix *a = &args->prefix;
    return 4.0 * (double)a->batch * (double)a->length * (double)a->heads * (double)a->head_dim * (double)a->places;
}

/* U D. The sum and its squares are read along with W. */
static double row_norms_flops(const weft_kernel_args *args) {
    const weft_row_norms *a = &args->row_norms;
    return 2.0 * (double)a->rows * (double)a->width * (double)(a->rank + 1);
}

static int32_t head_products(const weft_kernel *kernel, const weft_kernel_args *args,
                             weft_product_shape out[WEFT_CALL_PRODUCTS]) {
    const weft_head *a = &args->head_loss;
    int32_t n = 0;
    out[n++] = (weft_product_shape){a->rows, a->vocab, a->width, false, true};                  /* x W^T */
    if (kernel->dx) out[n++] = (weft_product_shape){a->rows, a->width, a->vocab, false, false}; /* dlogits W */
    if (kernel->dw) out[n++] = (weft_product_shape){a->vocab, a->width, a->rows, true, false};  /* dlogits^T x */
    return n;
}

/* Counts the rows that are looked up, not the table. */
static double embedding_traffic(const weft_kernel_args *args) {
    const weft_embedding *a = &args->embedding;
    const double row = (double)a->width * (double)(weft_dtype_bytes(a->dtype) + weft_dtype_bytes(a->dtype_table));
    return (double)a->rows * (row + 4.0);
}

double weft_kernel_operations(const weft_kernel *kernel, const weft_kernel_args *args) {
    weft_product_shape products[WEFT_CALL_PRODUCTS];
    const int32_t n = kernel->products == NULL ? 0 : kernel->products(kernel, args, products);
    double sum = kernel->flops == NULL ? 0.0 : kernel->flops(args) * (kernel->twice ? 2.0 : 1.0);
    for (int32_t i = 0; i < n; i++) sum += 2.0 * (double)products[i].m * (double)products[i].n * (double)products[i].k;
    return sum;
}

#define KERNEL_OF(id, of, ...) const weft_kernel weft_kernel_##id = {.name = #of, .slot = WEFT_SLOT_##of, __VA_ARGS__};
#define KERNEL(slot, ...)      KERNEL_OF(slot, slot, __VA_ARGS__)

KERNEL(matmul, .products = matmul_products)
KERNEL_OF(matmul_dx, matmul, .products = matmul_products, .part = "input gradient")
KERNEL_OF(matmul_dw, matmul, .products = matmul_products, .part = "weight gradient")
KERNEL(sum_rows, .part = "bias gradient")
KERNEL_OF(sum_matrix, sum_rows, .part = NULL)
KERNEL(norm, .part = NULL)
KERNEL(norm_backward, .part = NULL)
KERNEL(rope, .part = NULL)
KERNEL(attention, .flops = attention_flops)
KERNEL(attention_backward, .flops = attention_flops, .twice = true)
KERNEL(activation, .part = NULL)
KERNEL(activation_backward, .part = NULL)
KERNEL(embedding, .traffic = embedding_traffic)
KERNEL(embedding_backward, .part = NULL)
KERNEL(head_loss, .products = head_products)
KERNEL(head_loss_grad, .products = head_products, .dx = true, .dw = true)
KERNEL_OF(head_loss_dx, head_loss_grad, .products = head_products, .dx = true)
KERNEL_OF(head_loss_dw, head_loss_grad, .products = head_products, .dw = true)
KERNEL_OF(head_loss_dbias, head_loss_grad, .products = head_products)
KERNEL(scale, .part = NULL)
KERNEL(multiply, .part = NULL)
KERNEL(multiply_backward, .part = NULL)
KERNEL(dropout, .part = NULL)
KERNEL(row_norms, .flops = row_norms_flops, .part = "row norms")
KERNEL(prefix, .flops = prefix_flops, .part = "prefix")
KERNEL(prefix_backward, .flops = prefix_flops, .twice = true, .part = "prefix backward")
KERNEL(square_sum, .part = NULL)
KERNEL(clip, .part = NULL)
KERNEL(update, .part = NULL)
KERNEL(add, .glue = true)
KERNEL(copy, .glue = true)
KERNEL(zero, .glue = true)
const weft_kernel weft_kernel_custom = {.name = "forward", .slot = WEFT_SLOT_custom};
const weft_kernel weft_kernel_custom_backward = {.name = "backward", .slot = WEFT_SLOT_custom_backward};
