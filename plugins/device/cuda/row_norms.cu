/* row_norms.cu: see row_norms.h. A block processes a few rows of W, to reuse each element of D that it reads. Each
 * thread takes every BLOCK-th column in order, and a team sum adds the threads. */
#include "row_norms.h"

#include "cells.cuh"
#include "packed_types.cuh"
#include "teams.cuh"

#define BLOCK 256
#define ROWS  4
#define RANKS 32 /* of U in shared memory at a time */

/* Reads number `at` of W, stored as plain numbers or as blocks. */
template <typename W> struct matrix {
    enum { LEVELS = W::levels };
    static __device__ __forceinline__ float number(const void *w, int64_t at, const float *levels) {
        return packed_number<W>(w, at, levels);
    }
    static __device__ __forceinline__ void take(float *levels) {
        take_levels<W>(levels);
    }
};
template <typename T> struct numbers {
    enum { LEVELS = 0 };
    static __device__ __forceinline__ float number(const void *w, int64_t at, const float *) {
        return words<T>::get(static_cast<const T *>(w)[at]);
    }
    static __device__ __forceinline__ void take(float *) {}
};
template <> struct matrix<float> : numbers<float> {};
template <> struct matrix<bf16> : numbers<bf16> {};
template <> struct matrix<f16> : numbers<f16> {};

/* up (ROWS, RANKS): factor U of these rows, starting at rank `from`. */
template <typename T> static __device__ void take_up(float *up, const row_norms_call &c, int64_t row, int64_t from) {
    __syncthreads(); /* all threads are done with the previous ranks */
    for (int i = threadIdx.x; i < ROWS * RANKS; i += BLOCK) {
        const int64_t r = row + i / RANKS, j = from + i % RANKS;
        up[i] = r < c.rows && j < c.rank ? c.factor * words<T>::get(static_cast<const T *>(c.up)[r * c.rank + j])
                                         : 0.0f;
    }
    __syncthreads();
}

/* T: type of D and U; W: type of W. */
template <typename T, typename W>
static __global__ void __launch_bounds__(BLOCK) norm_rows_of_sum(const row_norms_call c) {
    CUDA_SHARED(float, partial, [MOST_WARPS]);
    CUDA_SHARED(float, up, [ROWS * RANKS]);
    CUDA_SHARED(float, levels, [matrix<W>::LEVELS + 1]);
    const team t = {BLOCK, static_cast<int>(threadIdx.x), partial};
    const int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS;
    float squares[ROWS] = {0.0f};
    matrix<W>::take(levels);
    for (int64_t first = 0; first < c.width; first += BLOCK) {
        const int64_t i = first + threadIdx.x;
        float sum[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            sum[r] = i < c.width && row + r < c.rows ? matrix<W>::number(c.w, (row + r) * c.width + i, levels) : 0.0f;
        for (int64_t from = 0; from < c.rank; from += RANKS) {
            if (first == 0 || c.rank > RANKS) take_up<T>(up, c, row, from);
            for (int j = 0; j < RANKS && from + j < c.rank && i < c.width; j++) {
                const float d = words<T>::get(static_cast<const T *>(c.down)[(from + j) * c.width + i]);
#pragma unroll
                for (int r = 0; r < ROWS; r++) sum[r] = fmaf(up[r * RANKS + j], d, sum[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) squares[r] = fmaf(sum[r], sum[r], squares[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float sum = team_sum(squares[r], t);
        if (threadIdx.x == 0 && row + r < c.rows) c.out[row + r] = sqrtf(sum);
    }
}

template <typename T, typename W> static cudaError_t run(const row_norms_call *call, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(blocks_for(call->rows, ROWS)));
    CUDA_LAUNCH((norm_rows_of_sum<T, W>), grid, BLOCK, 0, stream, *call);
    return cudaGetLastError();
}

template <typename T> static cudaError_t run_type(const row_norms_call *call, cudaStream_t stream) {
    if (call->dtype_w == WEFT_I8X64) return run<T, i8x64>(call, stream);
    if (call->dtype_w == WEFT_NF4) return run<T, nf4>(call, stream);
    if (call->dtype_w == WEFT_NF4X64) return run<T, nf4x64>(call, stream);
    if (call->dtype_w == WEFT_F8X128) return run<T, f8x128>(call, stream);
    if (call->dtype_w == WEFT_BF16) return run<T, bf16>(call, stream);
    return call->dtype_w == WEFT_F16 ? run<T, f16>(call, stream) : run<T, float>(call, stream);
}

extern "C" cudaError_t row_norms_launch(const row_norms_call *call, cudaStream_t stream) {
    if (call->rows == 0) return cudaSuccess;
    if (call->dtype == WEFT_BF16) return run_type<bf16>(call, stream);
    return call->dtype == WEFT_F16 ? run_type<f16>(call, stream) : run_type<float>(call, stream);
}
