/* factors.h: rows times shared factors, the factors' gradient, and dropout (factors.cu). */
#ifndef WEFT_DEVICE_CUDA_FACTORS_H
#define WEFT_DEVICE_CUDA_FACTORS_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y = or += (x - shift) v + shift. For element i of a row, v is by[i / part], divided by over[i / part] if present.
 * shift may be NULL. */
typedef struct factors_call {
    void *y;
    const void *x;
    const float *by, *over, *shift;
    int64_t rows, width, part;
    bool accumulate;
    int32_t dtype;
} factors_call;
cudaError_t factors_launch(const factors_call *call, cudaStream_t stream);

/* out[part] = or += the sum over rows and the part's elements of a (b - shift), divided by `over` */
typedef struct factor_sums_call {
    float *out;
    float *runs; /* factor_sums_runs(rows) rows of (width) */
    const void *a, *b;
    const float *over, *shift;
    int64_t rows, width, part;
    bool accumulate;
    int32_t dtype;
} factor_sums_call;
int64_t factor_sums_runs(int64_t rows);
cudaError_t factor_sums_launch(const factor_sums_call *call, cudaStream_t stream);

/* see weft_dropout in weft/device.h */
typedef struct dropout_call {
    void *y;
    const void *x;
    const int64_t *first;
    int64_t batch, row;
    uint64_t seed;
    uint32_t site, least;
    float factor;
    bool accumulate;
    int32_t dtype;
} dropout_call;
cudaError_t dropout_launch(const dropout_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
