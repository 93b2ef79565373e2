/* head.h: launchers of the head's work between its matmuls, for one chunk of rows (head.cu). */
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
    void *rows;    /* (n, width): x, with zeros in rows without weight */
    void *dx;      /* (n, width), or NULL */
    float *
        logits; /* (n, ld) from the matmul; the gradient overwrites them, the second half of each row if it is 16-bit */
    double *loss;      /* (n) */
    const float *bias; /* (vocab), or NULL */
    const int32_t *targets;
    const float *weights, *seed; /* seed NULL: 1 */
    int64_t n, width, vocab, ld;
    float scale, cap; /* cap 0: no cap */
    bool grad;
    int32_t dtype;
} head_chunk;
cudaError_t head_rows_launch(const head_chunk *chunk, cudaStream_t stream);
cudaError_t head_losses_launch(const head_chunk *chunk, cudaStream_t stream);
/* Zeroes the rows of dx that have no weight. */
cudaError_t head_clear_launch(const head_chunk *chunk, cudaStream_t stream);
/* total = the sum of n losses, in order. */
cudaError_t head_total_launch(double *total, const double *losses, int64_t n, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
