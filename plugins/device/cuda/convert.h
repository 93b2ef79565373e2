/* convert.h: launchers of convert.cu: a pattern, and numbers of one type into another's. */
#ifndef WEFT_DEVICE_CUDA_CONVERT_H
#define WEFT_DEVICE_CUDA_CONVERT_H

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* words > 0 */
cudaError_t fill_launch(cudaStream_t stream, uint32_t *to, uint32_t pattern, int64_t words);
/* Bytes of which both may have some, n > 0. */
cudaError_t move_launch(cudaStream_t stream, void *to, const void *from, int64_t n);
/* Types (weft_dtype) that differ, of fp32, bf16 and fp16; n > 0. */
cudaError_t convert_launch(cudaStream_t stream, void *to, int32_t dtype_to, const void *from, int32_t dtype_from,
                           int64_t n);
/* to (rows, width), rows `ld` apart: `row` rounded to its type in every row, or zero where that is NULL. rows, width >
 * 0. */
cudaError_t fill_rows_launch(cudaStream_t stream, void *to, int32_t dtype, const float *row, int64_t rows,
                             int64_t width, int64_t ld);

#ifdef __cplusplus
}
#endif
#endif
