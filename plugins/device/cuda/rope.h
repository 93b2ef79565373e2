/* rope.h: launcher of rotary embeddings (rope.cu). */
#ifndef WEFT_DEVICE_CUDA_ROPE_H
#define WEFT_DEVICE_CUDA_ROPE_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rope_call {
    const void *x;
    void *y;
    const int32_t *positions;
    const float *table; /* (table_rows, turned): cosines, then sines */
    int64_t rows, heads, head_dim, table_rows, turned;
    bool inverse, accumulate;
    int32_t dtype;
} rope_call;
cudaError_t rope_launch(const rope_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
