/* cell_bytes.h: element sizes of activations (fp32, bf16 or fp16), for C and device code. */
#ifndef WEFT_DEVICE_CUDA_CELL_BYTES_H
#define WEFT_DEVICE_CUDA_CELL_BYTES_H

#include <weft/base.h>

/* Returns the bytes of an element; for unsupported types those of fp32. */
static inline int64_t cell_bytes(int32_t dtype) {
    return dtype == WEFT_BF16 || dtype == WEFT_F16 ? 2 : 4;
}
/* Returns the elements per 16 bytes. */
static inline int64_t cells_of_16(int32_t dtype) {
    return 16 / cell_bytes(dtype);
}

#endif
