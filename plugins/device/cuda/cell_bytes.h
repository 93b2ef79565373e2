/* cell_bytes.h: activations are fp32, or bf16 or fp16, which take half as much; for C and device code. */
#ifndef WEFT_DEVICE_CUDA_CELL_BYTES_H
#define WEFT_DEVICE_CUDA_CELL_BYTES_H

#include <weft/base.h>

/* Bytes of one; as of fp32 for types that are refused. */
static inline int64_t cell_bytes(int32_t dtype) {
    return dtype == WEFT_BF16 || dtype == WEFT_F16 ? 2 : 4;
}
/* How many lie in 16 bytes. */
static inline int64_t cells_of_16(int32_t dtype) {
    return 16 / cell_bytes(dtype);
}

#endif
