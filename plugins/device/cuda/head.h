/* head.h: what lies between the products of the head, for a chunk of rows (head.cu). */
#ifndef WEFT_DEVICE_CUDA_HEAD_H
#define WEFT_DEVICE_CUDA_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A chunk of n rows. */
typedef struct head_chunk {
    const void *x; /* (n, width) */
    void *rows;    /* (n, width): x, but zeros where a row has no weight */
    void *dx;      /* (n, width), or NULL */
    float *
        logits; /* (n, ld) as the product gave them; in place their gradient, which in 16 bits takes half of each row */
    double *loss;      /* (n) */
    const float *bias; /* (vocab), or NULL */
    const int32_t *targets;
    const float *weights, *seed; /* seed NULL: one */
    int64_t n, width, vocab, ld;
    float scale, cap; /* 0: none */
    bool grad;
    int32_t dtype;
} head_chunk;
cudaError_t head_rows_launch(const head_chunk *chunk, cudaStream_t stream);
cudaError_t head_losses_launch(const head_chunk *chunk, cudaStream_t stream);
/* Rows of dx that have no weight become zero. */
cudaError_t head_clear_launch(const head_chunk *chunk, cudaStream_t stream);
/* total = the sum of n losses, in order. */
cudaError_t head_total_launch(double *total, const double *losses, int64_t n, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
