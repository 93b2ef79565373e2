/* scale.h: y = or += c(factor x) (scale.cu). */
#ifndef WEFT_DEVICE_CUDA_SCALE_H
#define WEFT_DEVICE_CUDA_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct scale_call {
    void *y;
    const void *x;
    int64_t n;
    float factor, cap; /* cap 0: no cap */
    bool accumulate;
    int32_t dtype;
} scale_call;
cudaError_t scale_launch(const scale_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
