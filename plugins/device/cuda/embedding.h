/* embedding.h: launchers of the embedding lookup and its gradient (embedding.cu). */
#ifndef WEFT_DEVICE_CUDA_EMBEDDING_H
#define WEFT_DEVICE_CUDA_EMBEDDING_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct embedding_call {
    const int32_t *ids; /* (rows) */
    const void *table;  /* (vocab, width) */
    void *y;            /* (rows, width) */
    int64_t rows, width, vocab;
    int32_t dtype, dtype_table; /* y and dy; table */
    /* of the backward */
    const void *dy;
    float *dtable;
    bool accumulate;
    int32_t padding; /* an id excluded from the gradient, or -1 */
    int32_t *begin;  /* (vocab + 1) */
    int32_t *order;  /* (rows) */
    int32_t *found;  /* (rows) */
} embedding_call;
cudaError_t embedding_launch(const embedding_call *call, cudaStream_t stream);
cudaError_t embedding_backward_launch(const embedding_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
