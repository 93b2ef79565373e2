/* row_sums.h: sums over rows, the gradients of parameters shared by all rows, such as a bias or a gain (row_sums.cu).
 *
 * Rows are divided into runs; the shape fixes their number. Each run is summed separately, and the runs are added in a
 * fixed order. The runs' sums are consecutive in the workspace. */
#ifndef WEFT_DEVICE_CUDA_ROW_SUMS_H
#define WEFT_DEVICE_CUDA_ROW_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Distance of two runs' sums in floats; each is aligned to 16 bytes. */
#define RUNS_DISTANCE(width) (((width) + 3) / 4 * 4)

typedef struct runs_call {
    float *out;        /* (width) */
    const float *runs; /* (n, RUNS_DISTANCE(width)) */
    int64_t n, width;
    bool accumulate;
} runs_call;
/* out = or += the sum of all runs. */
cudaError_t runs_launch(const runs_call *call, cudaStream_t stream);

typedef struct row_sums_call {
    float *out;
    float *runs; /* row_sums_runs(rows) of them */
    const void *x;
    int64_t rows, width, ld; /* ld: elements between rows */
    bool accumulate;
    int32_t dtype;
} row_sums_call;
int64_t row_sums_runs(int64_t rows);
/* out = or += the sum of x's rows. */
cudaError_t row_sums_launch(const row_sums_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
