/* attention.h: launchers of attention (attention_*.cu). Absent operands are NULL. */
#ifndef WEFT_DEVICE_CUDA_ATTENTION_H
#define WEFT_DEVICE_CUDA_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTENTION_HEAD_DIM_LIMIT 256

typedef struct attention_call {
    const void *q, *d_o;                          /* (B, T, H, d) */
    void *o, *dq;                                 /* (B, T, H, d); the backward reads o */
    void *k, *v;                                  /* (B, S, Hkv, d); written if there are new keys */
    const void *new_k, *new_v;                    /* (B, T, Hkv, d), or NULL */
    void *dk, *dv;                                /* (B, S, Hkv, d) */
    const int32_t *starts;                        /* (B, T) */
    const int64_t *past;                          /* NULL: 0 */
    float *lse;                                   /* (B, H, T) */
    float *delta;                                 /* (B, H, T): scratch of the backward */
    int64_t batch, length, rows, heads, kv_heads; /* rows: S, at most 2^30 */
    int head_dim;
    int window;                              /* 0: no window */
    float scale;                             /* of scores */
    float to_exponent, to_cap, cap_exponent; /* scale log2(e); with a cap: scale / cap, cap log2(e); without: 0 */
    int32_t dtype;
} attention_call;

/* Appends new keys and values to a cache. Writes nothing if they do not fit after `past` positions. */
cudaError_t attention_append_launch(const attention_call *call, cudaStream_t stream);
/* Computes o and lse; NaN if the new positions do not fit after `past`. */
cudaError_t attention_forward_launch(const attention_call *call, cudaStream_t stream);
/* Same for one query per sequence and head: a complete thread block shares a long row of keys. */
cudaError_t attention_decode_launch(const attention_call *call, cudaStream_t stream);
/* Sets o = 0 and lse = -inf at positions that see no key; bf16 without a cache. */
cudaError_t attention_blind_launch(const attention_call *call, cudaStream_t stream);
/* delta = sum(d_o o) per query and head; input of the other two. */
cudaError_t attention_delta_launch(const attention_call *call, cudaStream_t stream);
cudaError_t attention_backward_queries_launch(const attention_call *call, cudaStream_t stream);
cudaError_t attention_backward_keys_launch(const attention_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
