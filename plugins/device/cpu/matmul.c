/* matmul.c: the kernel `matmul`, which is a product with its operands looked up. A bias lies in c before the product is
 * added to it: one rounding, and no loop of products knows of it. */
#include "packed.h"

static product product_of(const weft_matmul *args) {
    const product p = {.m = args->m,
                       .n = args->n,
                       .k = args->k,
                       .lda = args->lda,
                       .ldb = args->ldb,
                       .ldc = args->ldc,
                       .transpose_a = args->transpose_a != 0,
                       .transpose_b = args->transpose_b != 0,
                       .mode = args->accumulate || args->has_bias ? PRODUCT_ADD : PRODUCT_SET,
                       .dtype = args->dtype_a,
                       .dtype_c = args->dtype_c};
    return p;
}

int64_t cpu_matmul_workspace(const weft_device *device, const weft_matmul *args) {
    const product p = product_of(args);
    return weft_dtype_is_packed(args->dtype_b) ? packed_workspace(device, &p) : product_workspace(device, &p);
}

/* A matrix of rows x width at distance ld: what lies beyond the last row's end is not touched. */
static void *look_up_matrix(operands *c, weft_ref ref, const char *name, int64_t rows, int64_t width, int64_t ld,
                            int32_t dtype) {
    const int64_t bytes = weft_dtype_bytes(dtype);
    if (c->status == WEFT_OK && ld < size_max(width, 1)) {
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device cpu: rows of operand %s are %lld apart and %lld wide.", c->kernel,
                                   name, (long long)ld, (long long)width);
    }
    if (c->status != WEFT_OK || rows == 0 || width == 0) return NULL;
    if (size_times(rows, ld) < 0) return operands_need(c, ref, name, rows, ld, bytes);
    return operands_need(c, ref, name, (rows - 1) * ld + width, 1, bytes);
}

/* A packed b: rows of whole blocks without a gap, each of which begins with a scale in fp32. */
static const weft_i8x64 *look_up_packed(operands *c, const weft_matmul *args) {
    const int64_t rows = args->transpose_b ? args->n : args->k, width = args->transpose_b ? args->k : args->n;
    const int64_t block = weft_dtype_block(args->dtype_b), words = weft_dtype_span(args->dtype_b, width) / 4;
    if (c->status == WEFT_OK && (args->ldb != width || width % block != 0)) {
        c->status =
            weft_error_set(c->err, WEFT_E_HOST,
                           "%s on device cpu: rows of operand b are %lld apart and %lld wide; %s lies without a "
                           "gap, in rows of whole blocks of %lld.",
                           c->kernel, (long long)args->ldb, (long long)width, weft_dtype_name(args->dtype_b),
                           (long long)block);
    }
    if (c->status != WEFT_OK || rows == 0 || width == 0) return NULL;
    return operands_need(c, args->b, "b", rows, words, 4);
}

/* Both operands in fp32, or both in bf16 and the result in either; b may be packed instead. */
static void check_matmul_types(operands *c, const weft_matmul *args) {
    const bool is_packed = args->dtype_b == WEFT_I8X64;
    (void)operands_dtype(c, "a", args->dtype_a);
    if (!is_packed) (void)operands_dtype(c, "b", args->dtype_b);
    (void)operands_dtype(c, "c", args->dtype_c);
    if (c->status != WEFT_OK) return;
    if ((is_packed || args->dtype_a == args->dtype_b) && (args->dtype_a == WEFT_BF16 || args->dtype_c == WEFT_F32))
        return;
    c->status =
        weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                       "matmul on device cpu: a is %s, b is %s and c is %s; both operands may be fp32 with c in "
                       "fp32, or both bf16 with c in fp32 or bf16; b may be int8x64 with either. Convert one first.",
                       weft_dtype_name(args->dtype_a), weft_dtype_name(args->dtype_b), weft_dtype_name(args->dtype_c));
}

static void check_bias(operands *c, const weft_matmul *args) {
    if (c->status != WEFT_OK || !args->has_bias || !args->accumulate) return;
    c->status = weft_error_set(c->err, WEFT_E_UNSUPPORTED,
                               "matmul on device cpu: a bias cannot be added together with what c held before.");
}

static void fill_rows_with_bias(const weft_device *device, const product *p, const float *bias) {
    const int64_t bytes = weft_dtype_bytes(p->dtype_c);
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < p->m; r++)
        cpu_cells_of(device, p->dtype_c)->put(cpu_at(p->c, r * p->ldc, bytes), bias, p->n, 0);
}

CPU_KERNEL(matmul, weft_matmul) {
    operands c = OPERANDS("matmul", weft_matmul, args, err);
    product p = {0};
    const weft_i8x64 *packed = NULL;
    const float *bias = NULL;
    void *workspace = NULL;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    p = product_of(args);
    check_matmul_types(&c, args);
    check_bias(&c, args);
    operands_size(&c, "m", p.m, 0);
    operands_size(&c, "n", p.n, 0);
    operands_size(&c, "k", p.k, 0);
    operands_size(&c, "lda", p.lda, 1);
    operands_size(&c, "ldb", p.ldb, 1);
    operands_size(&c, "ldc", p.ldc, 1);
    p.a = look_up_matrix(&c, args->a, "a", p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda, p.dtype);
    if (weft_dtype_is_packed(args->dtype_b)) packed = look_up_packed(&c, args);
    else p.b = look_up_matrix(&c, args->b, "b", p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb, p.dtype);
    p.c = look_up_matrix(&c, args->c, "c", p.m, p.n, p.ldc, p.dtype_c);
    if (args->has_bias) bias = operands_need(&c, args->bias, "bias", p.n, 1, 4);
    if (c.status != WEFT_OK) return c.status;
    workspace = operands_need_workspace(&c, args->workspace, cpu_matmul_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    if (bias != NULL) fill_rows_with_bias(device, &p, bias);
    return weft_dtype_is_packed(args->dtype_b) ? packed_run(device, &p, packed, workspace, "matmul", err)
                                               : product_run(device, &p, workspace, "matmul", err);
}
