/* add.h: y = a + b (add.cu). */
#ifndef WEFT_DEVICE_CUDA_ADD_H
#define WEFT_DEVICE_CUDA_ADD_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct add_call {
    void *y;
    const void *a, *b;
    int64_t n;
    int32_t dtype;
} add_call;
cudaError_t add_launch(const add_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
