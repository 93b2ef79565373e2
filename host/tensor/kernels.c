/* host/tensor/kernels.c: see kernels.h. */
#include "tensor/kernels.h"

#define INVOKE(name, field)                                                                                            \
    static weft_status invoke_##name(const weft_kernel_run *run, weft_kernel_args *args, weft_error *err) {            \
        return run->kernels->name(run->device, run->stream, &args->field, err);                                        \
    }
#define WORKSPACE(name, field)                                                                                         \
    static int64_t workspace_##name(const weft_kernel_run *run, const weft_kernel_args *args) {                        \
        return run->kernels->name##_workspace(run->device, &args->field);                                              \
    }

INVOKE(matmul, matmul)
#define invoke_matmul_dx invoke_matmul
#define invoke_matmul_dw invoke_matmul
INVOKE(rms_norm, rms_norm)
INVOKE(rms_norm_backward, rms_norm)
INVOKE(rope, rope)
INVOKE(attention, attention)
INVOKE(attention_backward, attention)
INVOKE(swiglu, swiglu)
INVOKE(swiglu_backward, swiglu)
INVOKE(embedding, embedding)
INVOKE(embedding_backward, embedding)
INVOKE(head_loss, head)
INVOKE(head_loss_grad, head)
INVOKE(add, add)
WORKSPACE(matmul, matmul)
WORKSPACE(rms_norm_backward, rms_norm)
WORKSPACE(attention, attention)
WORKSPACE(attention_backward, attention)
WORKSPACE(embedding_backward, embedding)
WORKSPACE(head_loss, head)
WORKSPACE(head_loss_grad, head)

static weft_status invoke_copy(const weft_kernel_run *run, weft_kernel_args *args, weft_error *err) {
    return run->kernels->copy(run->device, run->stream, args->copy.to, args->copy.from, args->copy.bytes, err);
}

static weft_status invoke_zero(const weft_kernel_run *run, weft_kernel_args *args, weft_error *err) {
    return run->kernels->fill(run->device, run->stream, args->zero.to, 0u, args->zero.words, err);
}

static weft_custom_call custom_call(const weft_kernel_run *run, const weft_custom_args *args) {
    const weft_custom_call call = {.struct_size = (uint32_t)sizeof call,
                                   .device = run->device,
                                   .kernels = run->kernels,
                                   .stream = run->stream,
                                   .args = args->args,
                                   .inputs = args->inputs,
                                   .output = args->output};
    return call;
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

static double product_flops(int32_t n, const weft_product_shape *products) {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) sum += 2.0 * (double)products[i].m * (double)products[i].n * (double)products[i].k;
    return sum;
}

static int32_t matmul_products(const weft_kernel_args *args, weft_product_shape out[WEFT_CALL_PRODUCTS]) {
    const weft_matmul *a = &args->matmul;
    const weft_product_shape product = {a->m, a->n, a->k, a->transpose_a != 0, a->transpose_b != 0};
    out[0] = product;
    return 1;
}

static double matmul_flops(const weft_kernel_args *args) {
    weft_product_shape products[WEFT_CALL_PRODUCTS];
    return product_flops(matmul_products(args, products), products);
}

/* Two products of (T, d) by (d, S) per head. Without a cache half of (T, T) is masked; with one the whole of it is an
 * upper bound for what a longer and longer past costs. */
static double attention_flops(const weft_kernel_args *args) {
    const weft_attention *a = &args->attention;
    const double heads = (double)a->batch * (double)a->heads * (double)a->head_dim;
    if (a->cache_rows > 0) return 4.0 * heads * (double)a->length * (double)a->cache_rows;
    return 2.0 * heads * (double)a->length * (double)a->length;
}

/* Four products: dv, dp, dq, dk. Scores made again are the kernel's own affair. */
static double attention_backward_flops(const weft_kernel_args *args) {
    return 2.0 * attention_flops(args);
}

/* Logits: x W^T. */
static int32_t head_loss_products(const weft_kernel_args *args, weft_product_shape out[WEFT_CALL_PRODUCTS]) {
    const weft_head *a = &args->head;
    const weft_product_shape logits = {a->rows, a->vocab, a->width, false, true};
    out[0] = logits;
    return 1;
}

static double head_loss_flops(const weft_kernel_args *args) {
    weft_product_shape products[WEFT_CALL_PRODUCTS];
    return product_flops(head_loss_products(args, products), products);
}

/* Logits, and each gradient that is wanted: dlogits W, dlogits^T x. */
static int32_t head_loss_grad_products(const weft_kernel_args *args, weft_product_shape out[WEFT_CALL_PRODUCTS]) {
    const weft_head *a = &args->head;
    const weft_product_shape dx = {a->rows, a->width, a->vocab, false, false};
    const weft_product_shape dw = {a->vocab, a->width, a->rows, true, false};
    int32_t n = head_loss_products(args, out);
    if (a->dx.offset != 0) out[n++] = dx;
    if (a->dw.offset != 0) out[n++] = dw;
    return n;
}

static double head_loss_grad_flops(const weft_kernel_args *args) {
    weft_product_shape products[WEFT_CALL_PRODUCTS];
    return product_flops(head_loss_grad_products(args, products), products);
}

/* Rows that are looked up, not the table. */
static double embedding_traffic(const weft_kernel_args *args) {
    const weft_embedding *a = &args->embedding;
    const double row = (double)a->width * (double)(weft_dtype_bytes(a->dtype) + weft_dtype_bytes(a->dtype_table));
    return (double)a->rows * (row + 4.0);
}

/* One row per kernel: how it is called, what scratch it needs, what it costs. */
#define ROW(id, title)    const weft_kernel weft_kernel_##id = {.name = title, .invoke = invoke_##id
#define SCRATCH(id, type) .workspace = workspace_##id, .workspace_field = offsetof(type, workspace)

#define PRODUCT SCRATCH(matmul, weft_matmul), .flops = matmul_flops, .products = matmul_products
ROW(matmul, "matmul"), PRODUCT
}
;
ROW(matmul_dx, "matmul"), PRODUCT, .part = "input gradient"
}
;
ROW(matmul_dw, "matmul"), PRODUCT, .part = "weight gradient"
}
;
ROW(rms_norm, "rms_norm")
}
;
ROW(rms_norm_backward, "rms_norm backward"), SCRATCH(rms_norm_backward, weft_rms_norm)
}
;
ROW(rope, "rope")
}
;
ROW(attention, "attention"), SCRATCH(attention, weft_attention), .flops = attention_flops
}
;
ROW(attention_backward, "attention backward"), SCRATCH(attention_backward, weft_attention),
    .flops = attention_backward_flops
}
;
ROW(swiglu, "swiglu")
}
;
ROW(swiglu_backward, "swiglu backward")
}
;
ROW(embedding, "embedding"), .traffic = embedding_traffic
}
;
ROW(embedding_backward, "embedding backward"), SCRATCH(embedding_backward, weft_embedding)
}
;
ROW(head_loss, "head loss"), SCRATCH(head_loss, weft_head), .flops = head_loss_flops, .products = head_loss_products
}
;
ROW(head_loss_grad, "head loss backward"), SCRATCH(head_loss_grad, weft_head), .flops = head_loss_grad_flops,
                                                                               .products = head_loss_grad_products
}
;
ROW(add, "add"), .glue = true
}
;
ROW(copy, "copy"), .glue = true
}
;
ROW(zero, "zero"), .glue = true
}
;
ROW(custom, "forward")
}
;
ROW(custom_backward, "backward")
}
;
