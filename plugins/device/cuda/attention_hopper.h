/* attention_hopper.h: launchers of attention on compute capability 9.0 (attention_hopper.cu). */
#ifndef WEFT_DEVICE_CUDA_ATTENTION_HOPPER_H
#define WEFT_DEVICE_CUDA_ATTENTION_HOPPER_H

#include <cuda.h>

#include "attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operands as tensors (head_dim, heads, positions, batch), copied in boxes of 64 elements of 64 positions. */
typedef struct attention_maps {
    CUtensorMap q, k, v, d_o;
} attention_maps;

cudaError_t attention_forward_hopper_launch(const attention_call *call, const attention_maps *maps,
                                            cudaStream_t stream);
/* Computes those of dq, dk and dv that are not NULL, with delta as input. */
cudaError_t attention_backward_hopper_launch(const attention_call *call, const attention_maps *maps,
                                             cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
