/* attention_cudnn.h: the forward of attention through cuDNN, where the key `attention` asks for it. */
#ifndef WEFT_DEVICE_CUDA_ATTENTION_CUDNN_H
#define WEFT_DEVICE_CUDA_ATTENTION_CUDNN_H

#include "attention.h"
#include "cuda.h"

/* Finds cuDNN and makes device->cudnn; a build or machine without it is a sentence. */
weft_status cuda_cudnn_open(weft_device *device, weft_error *err);
void cuda_cudnn_close(weft_device *device);

/* Whether a call is cuDNN's: the device has it, and the call is one of whole rows without a cache. */
bool cuda_cudnn_makes(const weft_device *device, const weft_attention *args);
/* 91900 for 9.19.0; 0: the device has none. */
int64_t cuda_cudnn_version(const weft_device *device);
/* Bytes that its plan needs; the plan is made here, before a step, and kept. 0 where there is none. */
int64_t cuda_cudnn_workspace(const weft_device *device, const weft_attention *args);
/* o and lse of such a call, both of which it needs; those of a place that sees nothing are NaN. fp32 is refused, and so
 * is what cuDNN has no plan for. */
weft_status cuda_cudnn_attention(weft_device *device, cudaStream_t stream, const weft_attention *args,
                                 const attention_call *call, void *workspace, weft_error *err);

#endif
