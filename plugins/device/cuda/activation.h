/* activation.h: y = f(x) up and its backward (activation.cu). */
#ifndef WEFT_DEVICE_CUDA_ACTIVATION_H
#define WEFT_DEVICE_CUDA_ACTIVATION_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct activation_call {
    const void *x, *up, *dy; /* up NULL: no gate; dy: for the backward */
    void *y, *dx, *dup;      /* y: forward; dx, dup: backward, each may be NULL */
    int64_t n;
    bool accumulate_dx, accumulate_dup;
    int32_t dtype;
    int form; /* weft_activation_form */
} activation_call;
cudaError_t activation_launch(const activation_call *call, cudaStream_t stream);
cudaError_t activation_backward_launch(const activation_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
