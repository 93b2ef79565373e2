/* weft/roofline.h: roofline measurement of a device; an extension of device/1, queried as WEFT_DEVICE_ROOFLINE.
 *
 * A step's speed is meaningful only relative to the peak speed of its matmuls. The device measures the peak, because
 * only the device links the GEMM library. Each function takes one or a few seconds and allocates memory, which it
 * frees. No other work may run on the device meanwhile.
 *
 * Intended users: bf16 matmuls (dtype), devices whose library selects among algorithms (the fastest counts).
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

    /* Measures multiplications and additions per second on operands that stay in registers. [main] [required] */
    weft_status (*peak)(weft_device *device, double *out, int32_t dtype, weft_error *err);
    /* Measures the fastest time of the matmul in seconds, by the GEMM library with its own threading. [main]
     * [required] */
    weft_status (*product)(weft_device *device, double *out, const weft_roofline_product *product, weft_error *err);
    /* Measures bytes per second, read and written, of y = a + b or y += a on arrays far larger than any cache; the
     * higher of the two. [main] [required] */
    weft_status (*bandwidth)(weft_device *device, double *out, weft_error *err);
} weft_device_roofline;

#ifdef __cplusplus
}
#endif
#endif
