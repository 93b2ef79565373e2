/* prefix.h: launchers of attention to a prefix that every query sees (prefix.cu). */
#ifndef WEFT_DEVICE_CUDA_PREFIX_H
#define WEFT_DEVICE_CUDA_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PREFIX_HEAD 256 /* maximum elements of a head */

typedef struct prefix_call {
    const void *q, *k, *v, *d_o;
    const float *turn; /* cosines and sines as in the rope table; NULL: no rotation */
    void *o, *dq, *dk, *dv;
    float *lse;
    float *weights, *slopes;      /* (rows, heads, places): probabilities and score gradients */
    float *key_runs, *value_runs; /* (prefix_runs(rows), places, kv_heads, head_dim) */
    int64_t rows, length, heads, kv_heads, head_dim, places, half; /* half: of the rotated width; rows: all batches */
    float scale;
    bool join, accumulate_dq;
    int32_t dtype;
} prefix_call;
int64_t prefix_runs(int64_t rows);
cudaError_t prefix_launch(const prefix_call *call, cudaStream_t stream);
cudaError_t prefix_backward_launch(const prefix_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
