/* norm.h: norms of rows and their backward (norm.cu). */
#ifndef WEFT_DEVICE_CUDA_NORM_H
#define WEFT_DEVICE_CUDA_NORM_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operands of both directions; what a call lacks is NULL. */
typedef struct norm_call {
    const void *x, *residual, *dy;
    const float *gain, *bias;
    float *rstd, *mean; /* the backward reads them, both or none */
    void *y, *sum, *dx;
    float *gain_runs, *bias_runs; /* the backward's sums (row_sums.h), norm_runs of them; or NULL */
    int64_t rows, width;
    float eps;
    bool layer, from_one, accumulate_dx;
    int32_t dtype;
} norm_call;
cudaError_t norm_launch(const norm_call *call, cudaStream_t stream);

/* Runs that the rows are cut into. */
int64_t norm_runs(int64_t rows, int64_t width, int32_t dtype);
/* dx, and the sums of each run; those are to be added up (runs_launch). */
cudaError_t norm_backward_launch(const norm_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
