/* attention_cudnn.h: the attention forward through cuDNN, enabled by the key `attention`. */
#ifndef WEFT_DEVICE_CUDA_ATTENTION_CUDNN_H
#define WEFT_DEVICE_CUDA_ATTENTION_CUDNN_H

#include "attention.h"
#include "cuda.h"

/* Loads cuDNN and creates device->cudnn; fails if the build or the machine lacks it. */
weft_status cuda_cudnn_open(weft_device *device, weft_error *err);
void cuda_cudnn_close(weft_device *device);

/* True if cuDNN computes this call: the device has cuDNN, and the call has complete sequences and no cache. */
bool cuda_cudnn_makes(const weft_device *device, const weft_attention *args);
/* Returns 91900 for 9.19.0, 0 without cuDNN. */
int64_t cuda_cudnn_version(const weft_device *device);
/* Returns the bytes that the call's plan needs. Makes and caches the plan here, before a step. 0 without a plan. */
int64_t cuda_cudnn_workspace(const weft_device *device, const weft_attention *args);
/* Computes o and lse of such a call; both are required. Positions that see no key become NaN. Fails for fp32 and for
 * shapes without a plan. */
weft_status cuda_cudnn_attention(weft_device *device, cudaStream_t stream, const weft_attention *args,
                                 const attention_call *call, void *workspace, weft_error *err);

#endif
