/* matmul.c: the kernel `matmul`: looks up operands and runs a product.c matmul. A bias is first written to c, and the
 * product is added to it: one rounding, and the matmul loops need no bias. */
#include "../common/matrices.h"
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

static void fill_rows_with_bias(const weft_device *device, const product *p, const float *bias) {
    const int64_t bytes = weft_dtype_bytes(p->dtype_c);
#pragma omp parallel for schedule(static) num_threads(device->threads)
    for (int64_t r = 0; r < p->m; r++)
        cpu_cells_of(device, p->dtype_c)->put(cpu_at(p->c, r * p->ldc, bytes), bias, p->n, 0);
}

CPU_KERNEL(matmul, weft_matmul) {
    operands c = OPERANDS("matmul", weft_matmul, args, err);
    matrices at = {0};
    product p = {0};
    packed_matrix b = {0};
    void *workspace = NULL;
    (void)s;
    if (c.status != WEFT_OK) return c.status;
    matrices_look_up(&c, &at, args);
    if (c.status != WEFT_OK) return c.status;
    workspace = operands_need_workspace(&c, args->workspace, cpu_matmul_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    p = product_of(args);
    p.a = at.a;
    p.b = at.b;
    p.c = at.c;
    if (at.bias != NULL) fill_rows_with_bias(device, &p, at.bias);
    b = (packed_matrix){at.packed, args->dtype_b};
    return weft_dtype_is_packed(args->dtype_b) ? packed_run(device, &p, &b, workspace, "matmul", err)
                                               : product_run(device, &p, workspace, "matmul", err);
}
