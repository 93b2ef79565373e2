/* row_norms.h: launcher of the row norms of W + factor U D (row_norms.cu). */
#ifndef WEFT_DEVICE_CUDA_ROW_NORMS_H
#define WEFT_DEVICE_CUDA_ROW_NORMS_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct row_norms_call {
    float *out;
    const void *w, *down, *up;
    int64_t rows, width, rank;
    float factor;
    int32_t dtype_w; /* weft_dtype */
    int32_t dtype;   /* of down and up */
} row_norms_call;
cudaError_t row_norms_launch(const row_norms_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
