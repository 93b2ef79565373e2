/* product.h: matrix products for the kernels. Not for blocks of attention, which are too small to be cut. */
#ifndef WEFT_DEVICE_CPU_PRODUCT_H
#define WEFT_DEVICE_CPU_PRODUCT_H

#include "cpu.h"

typedef enum product_mode {
    PRODUCT_SET,  /* c = product */
    PRODUCT_ADD,  /* c += product, which is made in full before it is added, once */
    PRODUCT_CHAIN /* c += product, added wherever that is cheapest: for sums that are one chain anyway */
} product_mode;

/* c (m,n) from op(a) (m,k) and op(b) (k,n), row-major, ld in elements. Sums are fp32; 16 bits of c are rounded once. */
typedef struct product {
    const void *a, *b;
    void *c;
    int64_t m, n, k, lda, ldb, ldc;
    bool transpose_a, transpose_b;
    product_mode mode;
    int32_t dtype;   /* of a and b: WEFT_F32, WEFT_BF16 or WEFT_F16 */
    int32_t dtype_c; /* WEFT_F32, or what a and b are */
    bool wide_a;     /* a has been widened to fp32, whatever dtype says: product_team.c alone sets it */
} product;

/* Bytes of scratch; operands are not looked at. */
int64_t product_workspace(const weft_device *device, const product *p);
/* kernel: for the sentence of an error. */
weft_status product_run(const weft_device *device, const product *p, void *workspace, const char *kernel,
                        weft_error *err);

#endif
