/* packed.h: launcher of packed.cu. */
#ifndef WEFT_DEVICE_CUDA_PACKED_H
#define WEFT_DEVICE_CUDA_PACKED_H

#include <cuda_runtime.h>

#include <weft/blocks.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A part of a packed matrix: rows of `width` numbers, starting at number `first`, `stride` numbers apart. */
typedef struct packed_rows {
    const void *blocks;
    int32_t dtype; /* weft_dtype of the blocks */
    int64_t first, rows, width, stride;
} packed_rows;

/* to (rows, width): fp32, or rounded to bf16 or fp16. rows, width > 0; `to` is aligned to 16 bytes. */
cudaError_t unpack_launch(cudaStream_t stream, void *to, int32_t dtype, const packed_rows *from);

#ifdef __cplusplus
}
#endif
#endif
