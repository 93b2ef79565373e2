/* convert.h: launchers of convert.cu: pattern fills, overlapping copies and type conversions. */
#ifndef WEFT_DEVICE_CUDA_CONVERT_H
#define WEFT_DEVICE_CUDA_CONVERT_H

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* words > 0 */
cudaError_t fill_launch(cudaStream_t stream, uint32_t *to, uint32_t pattern, int64_t words);
/* Ranges may overlap; n > 0. */
cudaError_t move_launch(cudaStream_t stream, void *to, const void *from, int64_t n);
/* Different types (weft_dtype) among fp32, bf16 and fp16; n > 0. */
cudaError_t convert_launch(cudaStream_t stream, void *to, int32_t dtype_to, const void *from, int32_t dtype_from,
                           int64_t n);
/* to (rows, width), rows `ld` apart: every row = `row` rounded to its type, or zero if NULL. rows, width > 0. */
cudaError_t fill_rows_launch(cudaStream_t stream, void *to, int32_t dtype, const float *row, int64_t rows,
                             int64_t width, int64_t ld);

#ifdef __cplusplus
}
#endif
#endif
