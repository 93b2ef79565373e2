/* product.c: matmuls by cuBLASLt, with fp32, bf16 or fp16 operands and fp32 sums. cuBLASLt rejects K = 0; this file
 * computes that case. */
#include "algorithm.h"
#include "convert.h"

enum { BIAS_ALIGNMENT = 16 };

/* A cuBLASLt bias epilogue reads vectors of C's type: bytes of an aligned copy of the bias in that type. */
static int64_t bias_bytes(const cuda_product *p) {
    return p->has_bias ? size_round_up(p->n * (p->dtype_c == WEFT_F32 ? 4 : 2), CUDA_LINE) : 0;
}

static bool is_empty(const cuda_product *p) {
    return p->m <= 0 || p->n <= 0;
}

/* Fails if an operand is aligned worse than its rows: that would need another algorithm, which could change bits. */
static weft_status check_alignment(const char *name, const void *at, int64_t ld, uint32_t least, weft_error *err) {
    if ((uintptr_t)at % least == 0) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_HOST,
        "matmul on device cuda: operand %s, with a row stride of %lld, should begin at a multiple of %u bytes.", name,
        (long long)ld, least);
}

static weft_status check_alignments(const cuda_product *p, weft_error *err) {
    const int64_t width = p->transpose_a ? p->m : p->k;
    weft_status status =
        check_alignment("a", p->a, p->lda, cuda_a_alignment(p->lda, width, p->a_is_part != 0, p->dtype_a), err);
    if (status == WEFT_OK) status = check_alignment("b", p->b, p->ldb, cuda_row_alignment(p->ldb, p->dtype_a), err);
    return status == WEFT_OK ? check_alignment("c", p->c, p->ldc, cuda_row_alignment(p->ldc, p->dtype_c), err) : status;
}

/* True if `a` has a smaller alignment because it is part of a wider matrix. */
static bool is_worse_as_part(const cuda_product *p) {
    const int64_t width = p->transpose_a ? p->m : p->k;
    return p->a_is_part && cuda_a_alignment(p->lda, width, true, p->dtype_a) != cuda_row_alignment(p->lda, p->dtype_a);
}

static cuda_shape shape_of(const weft_device *device, const cuda_product *p) {
    const cuda_shape s = {.m = p->m,
                          .n = p->n,
                          .k = p->k,
                          .lda = p->lda,
                          .ldb = p->ldb,
                          .ldc = p->ldc,
                          .dtype = p->dtype_a,
                          .dtype_c = p->dtype_c,
                          .transpose_a = p->transpose_a != 0,
                          .transpose_b = p->transpose_b != 0,
                          .accumulate = p->accumulate != 0,
                          .has_bias = p->has_bias != 0,
                          .tf32 = device->tf32 && p->dtype_a == WEFT_F32,
                          .a_is_part = is_worse_as_part(p)};
    return s;
}

int64_t cuda_product_workspace(const weft_device *device, const cuda_product *p) {
    const cuda_shape shape = shape_of(device, p);
    if (is_empty(p) || p->k <= 0) return 0;
    cuda_algorithm_note(device, &shape);
    return device->workspace + CUDA_LINE + bias_bytes(p);
}

/* Returns the bias in C's type and aligned, copied into the start of the workspace if it is not. */
static weft_status place_bias(const void **out, cudaStream_t stream, const cuda_product *p, void *workspace,
                              weft_error *err) {
    *out = p->bias;
    if (!p->has_bias || (p->dtype_c == WEFT_F32 && (uintptr_t)p->bias % BIAS_ALIGNMENT == 0)) return WEFT_OK;
    *out = workspace;
    return cuda_judge(convert_launch(stream, workspace, p->dtype_c, p->bias, WEFT_F32, p->n), "matmul", err);
}

/* Computes C for K = 0: zero, the bias, or C unchanged with accumulate. */
static weft_status sum_nothing(cudaStream_t stream, const cuda_product *p, weft_error *err) {
    if (p->accumulate) return WEFT_OK;
    return cuda_judge(fill_rows_launch(stream, p->c, p->dtype_c, p->bias, p->m, p->n, p->ldc), "matmul", err);
}

static weft_status multiply(weft_device *device, cudaStream_t stream, const cuda_product *p, cuda_algorithm *by,
                            weft_error *err) {
    const float one = 1, old = p->accumulate ? 1 : 0;
    char *workspace = cuda_line_up(p->workspace);
    const void *bias = NULL;
    weft_status status = place_bias(&bias, stream, p, workspace, err);
    if (status == WEFT_OK && cuda_dry_product()) return WEFT_OK;
    if (status == WEFT_OK && bias != NULL)
        status = cuda_judge_lt(device,
                               device->libraries.cublasLtMatmulDescSetAttribute(
                                   by->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
                               "matmul", err);
    if (status != WEFT_OK) return status;
    return cuda_judge_lt(device,
                         device->libraries.cublasLtMatmul(device->lt, by->product, &one, p->b, by->b, p->a, by->a, &old,
                                                          p->c, by->c, p->c, by->c, &by->way, workspace + bias_bytes(p),
                                                          (size_t)device->workspace, stream),
                         "matmul", err);
}

weft_status cuda_product_run(weft_device *device, cudaStream_t stream, const cuda_product *p, weft_error *err) {
    const cuda_shape shape = shape_of(device, p);
    cuda_algorithm *by = NULL;
    weft_status status = WEFT_OK;
    if (is_empty(p)) return WEFT_OK;
    if (p->k == 0) return sum_nothing(stream, p, err);
    status = check_alignments(p, err);
    if (status == WEFT_OK && !cuda_is_dry()) status = cuda_algorithm_find(&by, device, &shape, false, err);
    return status == WEFT_OK ? multiply(device, stream, p, by, err) : status;
}
