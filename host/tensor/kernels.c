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
INVOKE(rms_norm, rms_norm)
INVOKE(rms_norm_backward, rms_norm)
INVOKE(rope, rope)
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

static weft_status invoke_attention(const weft_kernel_run *run, weft_kernel_args *args, weft_error *err) {
    if (args->attention.cache_rows > 0) args->attention.past = run->past;
    return run->kernels->attention(run->device, run->stream, &args->attention, err);
}

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

static double matmul_flops(const weft_kernel_args *args) {
    const weft_matmul *a = &args->matmul;
    return 2.0 * (double)a->m * (double)a->n * (double)a->k;
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

static double head_loss_flops(const weft_kernel_args *args) {
    const weft_head *a = &args->head;
    return 2.0 * (double)a->rows * (double)a->width * (double)a->vocab;
}

/* Logits, and each gradient that is wanted. */
static double head_loss_grad_flops(const weft_kernel_args *args) {
    const weft_head *a = &args->head;
    return head_loss_flops(args) * (1.0 + (a->dx.offset != 0 ? 1.0 : 0.0) + (a->dw.offset != 0 ? 1.0 : 0.0));
}

/* Rows that are looked up, not the table. */
static double embedding_traffic(const weft_kernel_args *args) {
    const weft_embedding *a = &args->embedding;
    const double row = (double)a->width * (double)(weft_dtype_bytes(a->dtype) + weft_dtype_bytes(a->dtype_table));
    return (double)a->rows * (row + 4.0);
}

/* One row per kernel: how it is called, what scratch it needs, what it costs. */
#define ROW(id, title) const weft_kernel weft_kernel_##id = {.name = title, .invoke = invoke_##id
#define SCRATCH(id, type) .workspace = workspace_##id, .workspace_field = offsetof(type, workspace)

ROW(matmul, "matmul"), SCRATCH(matmul, weft_matmul), .flops = matmul_flops};
ROW(rms_norm, "rms_norm")};
ROW(rms_norm_backward, "rms_norm backward"), SCRATCH(rms_norm_backward, weft_rms_norm)};
ROW(rope, "rope")};
ROW(attention, "attention"), SCRATCH(attention, weft_attention), .flops = attention_flops};
ROW(attention_backward, "attention backward"), SCRATCH(attention_backward, weft_attention),
    .flops = attention_backward_flops};
ROW(swiglu, "swiglu")};
ROW(swiglu_backward, "swiglu backward")};
ROW(embedding, "embedding"), .traffic = embedding_traffic};
ROW(embedding_backward, "embedding backward"), SCRATCH(embedding_backward, weft_embedding)};
ROW(head_loss, "head loss"), SCRATCH(head_loss, weft_head), .flops = head_loss_flops};
ROW(head_loss_grad, "head loss backward"), SCRATCH(head_loss_grad, weft_head), .flops = head_loss_grad_flops};
ROW(add, "add")};
ROW(copy, "copy")};
ROW(zero, "zero")};
ROW(custom, "forward")};
ROW(custom_backward, "backward")};
