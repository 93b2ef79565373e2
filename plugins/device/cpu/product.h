/* product.h: matmuls for the kernels. Blocks of attention do not use it; they are too small to divide. */
#ifndef WEFT_DEVICE_CPU_PRODUCT_H
#define WEFT_DEVICE_CPU_PRODUCT_H

#include "cpu.h"

typedef enum product_mode {
    PRODUCT_SET,  /* c = product */
    PRODUCT_ADD,  /* c += product; the complete product is added once */
    PRODUCT_CHAIN /* c += product, in any order of addition: for sums that are one chain anyway */
} product_mode;

/* c (m,n) from op(a) (m,k) and op(b) (k,n), row-major, ld in elements. Sums are fp32; a 16-bit c is rounded once. */
typedef struct product {
    const void *a, *b;
    void *c;
    int64_t m, n, k, lda, ldb, ldc;
    bool transpose_a, transpose_b;
    product_mode mode;
    int32_t dtype;   /* of a and b: WEFT_F32, WEFT_BF16 or WEFT_F16 */
    int32_t dtype_c; /* WEFT_F32, or the type of a and b */
    bool wide_a;     /* a is already widened to fp32, regardless of dtype; only product_team.c sets it */
} product;

/* Returns the bytes of scratch; ignores operand pointers. */
int64_t product_workspace(const weft_device *device, const product *p);
/* kernel: name for error messages. */
weft_status product_run(const weft_device *device, const product *p, void *workspace, const char *kernel,
                        weft_error *err);

#endif
