/* weft/roof.h: what a device's machine could give at most; an extension of device/1, asked for as WEFT_DEVICE_ROOF.
 *
 * A step's speed says little without the speed that its products could have. A device measures that itself, since it
 * alone links the library that makes them. Each function takes a second or a few and memory of its own, which it gives
 * back. Nothing else may run on the device meanwhile.
 *
 * Later users this serves: bf16 products (dtype), devices whose library picks among algorithms (the fastest counts).
 */
#ifndef WEFT_ROOF_H
#define WEFT_ROOF_H

#include <weft/device.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_DEVICE_ROOF "weft.device.roof/1" /* the extension is a const weft_device_roof */

/* C (m,n) = op(A) op(B) with the inner dimension k, as in weft_matmul, rows packed or apart as the library likes. */
typedef struct weft_roof_product {
    uint32_t struct_size;
    uint32_t flags;
    int64_t m, n, k;
    int32_t transpose_a, transpose_b;
    int32_t dtype; /* weft_dtype of a and b; C is fp32 */
    int32_t reserved;
} weft_roof_product;

typedef struct weft_device_roof {
    uint32_t struct_size;
    uint32_t flags;

    /* Operations per second of multiplications and additions on operands that never leave the registers. [main]
     * [required] */
    weft_status (*peak)(weft_device *device, double *out, int32_t dtype, weft_error *err);
    /* Seconds of the product at its fastest, by the matrix library itself with its own threading. [main] [required] */
    weft_status (*product)(weft_device *device, double *out, const weft_roof_product *product, weft_error *err);
    /* Bytes per second that a sum of arrays far larger than any cache reads and writes, y = a + b or y += a, whichever
     * moves more. [main] [required] */
    weft_status (*bandwidth)(weft_device *device, double *out, weft_error *err);
} weft_device_roof;

#ifdef __cplusplus
}
#endif
#endif
