/* matmul.c: the kernel-table slot `matmul`: looks up operands and runs a product.c matmul. */
#include "cuda.h"

static cuda_product product_of(const weft_matmul *args) {
    const cuda_product p = {.m = args->m,
                            .n = args->n,
                            .k = args->k,
                            .lda = args->lda,
                            .ldb = args->ldb,
                            .ldc = args->ldc,
                            .dtype_a = args->dtype_a,
                            .dtype_b = args->dtype_b,
                            .dtype_c = args->dtype_c,
                            .transpose_a = args->transpose_a,
                            .transpose_b = args->transpose_b,
                            .accumulate = args->accumulate,
                            .has_bias = args->has_bias,
                            .a_is_part = 1};
    return p;
}

int64_t cuda_matmul_workspace(const weft_device *device, const weft_matmul *args) {
    const cuda_product p = product_of(args);
    return weft_dtype_is_packed(args->dtype_b) ? cuda_packed_workspace(device, &p) : cuda_product_workspace(device, &p);
}

CUDA_KERNEL(matmul, weft_matmul) {
    operands c = OPERANDS("matmul", weft_matmul, args, err);
    cudaStream_t stream = NULL;
    cuda_product p = {0};
    matrices at = {0};
    if (c.status != WEFT_OK) return c.status;
    matrices_look_up(&c, &at, args);
    if (c.status != WEFT_OK) return c.status;
    p = product_of(args);
    p.workspace = operands_need_workspace(&c, args->workspace, cuda_matmul_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    p.a = at.a;
    p.b = at.b;
    p.c = at.c;
    p.bias = at.bias;
    stream = cuda_stream(device, s);
    return weft_dtype_is_packed(args->dtype_b) ? cuda_packed_multiply(device, stream, &p, at.packed, err)
                                               : cuda_product_run(device, stream, &p, err);
}
