/* host/graph/kernels.c: see kernels.h. */
#include "graph/kernels.h"

#define INVOKE(name, field)                                                                                            \
    static weft_status invoke_##name(const weft_kernel_run *run, weft_kernel_args *args, weft_error *err) {            \
        return run->kernels->name(run->device, run->stream, &args->field, err);                                        \
    }
#define WORKSPACE(name, field)                                                                                         \
    static int64_t workspace_##name(const weft_kernel_run *run, const weft_kernel_args *args) {                        \
        return run->kernels->name##_workspace(run->device, &args->field);                                              \
    }

INVOKE(matmul, matmul)
INVOKE(sum_rows, sum_rows)
INVOKE(norm, norm)
INVOKE(norm_backward, norm)
INVOKE(rope, rope)
INVOKE(attention, attention)
INVOKE(attention_backward, attention)
INVOKE(activation, activation)
INVOKE(activation_backward, activation)
INVOKE(embedding, embedding)
INVOKE(embedding_backward, embedding)
INVOKE(head_loss, head)
INVOKE(head_loss_grad, head)
INVOKE(scale, scale)
INVOKE(add, add)
INVOKE(multiply, multiply)
INVOKE(multiply_backward, multiply)
INVOKE(dropout, dropout)
INVOKE(row_norms, row_norms)
INVOKE(prefix, prefix)
INVOKE(prefix_backward, prefix)
WORKSPACE(matmul, matmul)
WORKSPACE(sum_rows, sum_rows)
WORKSPACE(norm_backward, norm)
WORKSPACE(attention, attention)
WORKSPACE(attention_backward, attention)
WORKSPACE(embedding_backward, embedding)
WORKSPACE(multiply_backward, multiply)
WORKSPACE(row_norms, row_norms)
WORKSPACE(prefix, prefix)
WORKSPACE(prefix_backward, prefix)
WORKSPACE(head_loss, head)
WORKSPACE(head_loss_grad, head)

static weft_status invoke_copy(const weft_kernel_run *run, weft_kernel_args *args, weft_error *err) {
    return run->kernels->copy(run->device, run->stream, args->copy.to, args->copy.from, args->copy.bytes, err);
}

static weft_status invoke_zero(const weft_kernel_run *run, weft_kernel_args *args, weft_error *err) {
    return run->kernels->fill(run->device, run->stream, args->zero.to, 0u, args->zero.words, err);
}

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

static weft_status invoke_custom(const weft_kernel_run *run, weft_kernel_args *args, weft_error *err) {
    const weft_custom_call call = custom_call(run, &args->custom);
    return args->custom.op->forward(&call, err);
}

static weft_status invoke_custom_backward(const weft_kernel_run *run, weft_kernel_args *args, weft_error *err) {
    weft_custom_call call = custom_call(run, &args->custom);
    call.d_output = args->custom.d_output;
    call.d_inputs = args->custom.d_inputs;
    call.accumulate = args->custom.accumulate;
    return args->custom.op->backward(&call, err);
}

/* ---- costs of calls ---- */

static int32_t matmul_products(const weft_kernel_args *args, weft_product_shape out[WEFT_CALL_PRODUCTS]) {
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

static double prefix_backward_flops(const weft_kernel_args *args) {
    return 2.0 * prefix_flops(args);
}

/* U D. The sum and its squares are read along with W. */
static double row_norms_flops(const weft_kernel_args *args) {
    const weft_row_norms *a = &args->row_norms;
    return 2.0 * (double)a->rows * (double)a->width * (double)(a->rank + 1);
}

/* Four matmuls: dv, dp, dq, dk. Recomputed scores are not counted. */
static double attention_backward_flops(const weft_kernel_args *args) {
    return 2.0 * attention_flops(args);
}

/* x W^T */
static weft_product_shape head_logits(const weft_head *a) {
    return (weft_product_shape){a->rows, a->vocab, a->width, false, true};
}

/* dlogits W */
static weft_product_shape head_dx(const weft_head *a) {
    return (weft_product_shape){a->rows, a->width, a->vocab, false, false};
}

/* dlogits^T x */
static weft_product_shape head_dw(const weft_head *a) {
    return (weft_product_shape){a->vocab, a->width, a->rows, true, false};
}

static int32_t head_loss_products(const weft_kernel_args *args, weft_product_shape out[WEFT_CALL_PRODUCTS]) {
    out[0] = head_logits(&args->head);
    return 1;
}

static int32_t head_loss_dx_products(const weft_kernel_args *args, weft_product_shape out[WEFT_CALL_PRODUCTS]) {
    out[0] = head_logits(&args->head);
    out[1] = head_dx(&args->head);
    return 2;
}

static int32_t head_loss_dw_products(const weft_kernel_args *args, weft_product_shape out[WEFT_CALL_PRODUCTS]) {
    out[0] = head_logits(&args->head);
    out[1] = head_dw(&args->head);
    return 2;
}

static int32_t head_loss_grad_products(const weft_kernel_args *args, weft_product_shape out[WEFT_CALL_PRODUCTS]) {
    out[0] = head_logits(&args->head);
    out[1] = head_dx(&args->head);
    out[2] = head_dw(&args->head);
    return 3;
}

/* Counts the rows that are looked up, not the table. */
static double embedding_traffic(const weft_kernel_args *args) {
    const weft_embedding *a = &args->embedding;
    const double row = (double)a->width * (double)(weft_dtype_bytes(a->dtype) + weft_dtype_bytes(a->dtype_table));
    return (double)a->rows * (row + 4.0);
}

double weft_kernel_operations(const weft_kernel *kernel, const weft_kernel_args *args) {
    weft_product_shape products[WEFT_CALL_PRODUCTS];
    const int32_t n = kernel->products == NULL ? 0 : kernel->products(args, products);
    double sum = kernel->flops == NULL ? 0.0 : kernel->flops(args);
    for (int32_t i = 0; i < n; i++) sum += 2.0 * (double)products[i].m * (double)products[i].n * (double)products[i].k;
    return sum;
}

#define SCRATCH(name, type) .workspace = workspace_##name, .workspace_field = offsetof(type, workspace)
#define KERNEL(id, label, call, ...)                                                                                   \
    const weft_kernel weft_kernel_##id = {.name = (label), .invoke = invoke_##call, __VA_ARGS__};

KERNEL(matmul, "matmul", matmul, SCRATCH(matmul, weft_matmul), .products = matmul_products)
KERNEL(matmul_dx, "matmul", matmul, SCRATCH(matmul, weft_matmul), .products = matmul_products, .part = "input gradient")
KERNEL(matmul_dw, "matmul", matmul, SCRATCH(matmul, weft_matmul), .products = matmul_products,
       .part = "weight gradient")
KERNEL(sum_rows, "sum_rows", sum_rows, SCRATCH(sum_rows, weft_sum_rows), .part = "bias gradient")
KERNEL(sum_matrix, "sum_rows", sum_rows, SCRATCH(sum_rows, weft_sum_rows), .part = NULL)
KERNEL(norm, "norm", norm, .part = NULL)
KERNEL(norm_backward, "norm backward", norm_backward, SCRATCH(norm_backward, weft_norm))
KERNEL(rope, "rope", rope, .part = NULL)
KERNEL(attention, "attention", attention, SCRATCH(attention, weft_attention), .flops = attention_flops)
KERNEL(attention_backward, "attention backward", attention_backward, SCRATCH(attention_backward, weft_attention),
       .flops = attention_backward_flops)
KERNEL(activation, "activation", activation, .part = NULL)
KERNEL(activation_backward, "activation backward", activation_backward, .part = NULL)
KERNEL(embedding, "embedding", embedding, .traffic = embedding_traffic)
KERNEL(embedding_backward, "embedding backward", embedding_backward, SCRATCH(embedding_backward, weft_embedding))
KERNEL(head_loss, "head loss", head_loss, SCRATCH(head_loss, weft_head), .products = head_loss_products)
KERNEL(head_loss_grad, "head loss backward", head_loss_grad, SCRATCH(head_loss_grad, weft_head),
       .products = head_loss_grad_products)
KERNEL(head_loss_dx, "head loss backward", head_loss_grad, SCRATCH(head_loss_grad, weft_head),
       .products = head_loss_dx_products)
KERNEL(head_loss_dw, "head loss backward", head_loss_grad, SCRATCH(head_loss_grad, weft_head),
       .products = head_loss_dw_products)
KERNEL(head_loss_dbias, "head loss backward", head_loss_grad, SCRATCH(head_loss_grad, weft_head),
       .products = head_loss_products)
KERNEL(scale, "scale", scale, .part = NULL)
KERNEL(multiply, "multiply", multiply, .part = NULL)
KERNEL(multiply_backward, "multiply backward", multiply_backward, SCRATCH(multiply_backward, weft_multiply))
KERNEL(dropout, "dropout", dropout, .part = NULL)
KERNEL(row_norms, "row norms", row_norms, SCRATCH(row_norms, weft_row_norms), .flops = row_norms_flops,
       .part = "row norms")
KERNEL(prefix, "prefix", prefix, SCRATCH(prefix, weft_prefix), .flops = prefix_flops, .part = "prefix")
KERNEL(prefix_backward, "prefix backward", prefix_backward, SCRATCH(prefix_backward, weft_prefix),
       .flops = prefix_backward_flops, .part = "prefix backward")
KERNEL(add, "add", add, .glue = true)
KERNEL(copy, "copy", copy, .glue = true)
KERNEL(zero, "zero", zero, .glue = true)
KERNEL(custom, "forward", custom, .part = NULL)
KERNEL(custom_backward, "backward", custom_backward, .part = NULL)
