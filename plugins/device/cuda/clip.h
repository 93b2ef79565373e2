/* clip.h: launcher of the gradient norm and the clip coefficient (clip.cu). */
#ifndef WEFT_DEVICE_CUDA_CLIP_H
#define WEFT_DEVICE_CUDA_CLIP_H

#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clip_call {
    const double *square_sums, *count;
    const float *seed; /* NULL: 1 */
    double *norm;
    float *coefficient;
    int32_t *skip;
    int64_t n;
    double clip;
} clip_call;
cudaError_t clip_launch(const clip_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
