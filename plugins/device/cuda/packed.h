/* packed.h: the launcher of packed.cu. */
#ifndef WEFT_DEVICE_CUDA_PACKED_H
#define WEFT_DEVICE_CUDA_PACKED_H

#include <cuda_runtime.h>

#include <weft/blocks.h>

#ifdef __cplusplus
extern "C" {
#endif

/* to (rows, 64 blocks): the numbers of rows of `blocks` blocks, which lie `stride` blocks apart; fp32, or rounded to
 * bf16. rows, blocks > 0; `to` is aligned to 16 bytes. */
cudaError_t unpack_launch(cudaStream_t stream, void *to, int32_t dtype, const weft_i8x64 *from, int64_t rows,
                          int64_t blocks, int64_t stride);

#ifdef __cplusplus
}
#endif
#endif
