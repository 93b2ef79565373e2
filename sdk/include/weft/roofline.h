/* weft/roofline.h: roofline measurement of a device; an extension of device/1, queried as WEFT_DEVICE_ROOFLINE.
 *
 * A step's speed is meaningful only relative to the peak speed of its matmuls. The device measures the peak, because
 * only the device links the GEMM library. Each function takes up to a few seconds and allocates memory, which it
 * frees. No other work may run on the device meanwhile.
 *
 * The CPU device has all three slots. The CUDA device has no `product`: its `peak` is one large matmul by cuBLASLt.
 */
#ifndef WEFT_ROOFLINE_H
#define WEFT_ROOFLINE_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DEVICE_ROOFLINE "weft.device.roofline/1" /* the extension is a const weft_device_roofline */

/* C (m,n) = op(A) op(B) with inner dimension k, as in weft_matmul; the library may pad the rows. */
typedef struct weft_roofline_product {
    uint32_t struct_size;
    uint32_t flags;
    int64_t m, n, k;
    int32_t transpose_a, transpose_b;
    int32_t dtype; /* weft_dtype of a and b; C is fp32 */
    int32_t reserved;
} weft_roofline_product;

typedef struct weft_device_roofline {
    uint32_t struct_size;
    uint32_t flags;

    /* Measures the most multiplications and additions per second of a matmul in this type: on operands that stay in
     * registers, or in a large matmul by the GEMM library. [main] [required] */
    weft_status (*peak)(weft_device *device, double *out, int32_t dtype, weft_error *err);
    /* Measures the fastest time of the matmul in seconds, by the GEMM library with its own threading. NULL: the peak
     * bounds matmuls of all sizes. [main] */
    weft_status (*product)(weft_device *device, double *out, const weft_roofline_product *product, weft_error *err);
    /* Measures bytes per second, read and written, of an addition of arrays or a copy far larger than any cache. [main]
     * [required] */
    weft_status (*bandwidth)(weft_device *device, double *out, weft_error *err);
} weft_device_roofline;

#ifdef __cplusplus
}
#endif
#endif
