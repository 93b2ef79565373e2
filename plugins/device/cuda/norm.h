/* norm.h: launchers of norms and their backward (norm.cu). */
#ifndef WEFT_DEVICE_CUDA_NORM_H
#define WEFT_DEVICE_CUDA_NORM_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operands of both directions; NULL where absent. The backward adds the residual to dx. */
typedef struct norm_call {
    const void *x, *residual, *dy;
    const float *gain, *bias;
    float *rstd, *mean; /* read by the backward; both or neither */
    void *y, *sum, *dx;
    float *gain_runs, *bias_runs; /* norm_runs partial sums of the backward (row_sums.h); or NULL */
    int64_t rows, width;
    float eps;
    bool layer, from_one;
    int32_t dtype;
} norm_call;
cudaError_t norm_launch(const norm_call *call, cudaStream_t stream);

int64_t norm_runs(int64_t rows, int64_t width, int32_t dtype);
/* Computes dx and each run's sums; the caller adds the runs (runs_launch). */
cudaError_t norm_backward_launch(const norm_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
