/* row_norms.cu: see row_norms.h. A block has a few rows of W, so that what it reads of D serves all of them; each
 * thread takes every BLOCK-th column in order, and the threads' sums are added as a team's. */
#include "row_norms.h"

#include "cells.cuh"
#include "teams.cuh"

#include <weft/blocks.h>

#define BLOCK 256
#define ROWS  4
#define RANKS 32 /* of U that lie in shared memory at a time */

template <typename T, bool Packed>
static __device__ __forceinline__ float element(const row_norms_call &c, int64_t at) {
    if (Packed) {
        const weft_i8x64 *block = static_cast<const weft_i8x64 *>(c.w) + at / 64;
        return block->scale * static_cast<float>(block->q[at % 64]);
    }
    return words<T>::get(static_cast<const T *>(c.w)[at]);
}

/* up (ROWS, RANKS): factor U of these rows, from rank `from` on. */
template <typename T> static __device__ void take_up(float *up, const row_norms_call &c, int64_t row, int64_t from) {
    __syncthreads(); /* all have done with the ones before */
    for (int i = threadIdx.x; i < ROWS * RANKS; i += BLOCK) {
        const int64_t r = row + i / RANKS, j = from + i % RANKS;
        up[i] = r < c.rows && j < c.rank ? c.factor * words<T>::get(static_cast<const T *>(c.up)[r * c.rank + j])
                                         : 0.0f;
    }
    __syncthreads();
}

template <typename T, bool Packed> static __global__ void __launch_bounds__(BLOCK) norm_rows(const row_norms_call c) {
    CUDA_SHARED(float, partial, [MOST_WARPS]);
    CUDA_SHARED(float, up, [ROWS * RANKS]);
    const team t = team_of(BLOCK, partial);
    const int64_t row = static_cast<int64_t>(blockIdx.x) * ROWS;
    float squares[ROWS] = {0.0f};
    for (int64_t first = 0; first < c.width; first += BLOCK) {
        const int64_t i = first + threadIdx.x;
        float sum[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            sum[r] = i < c.width && row + r < c.rows ? element<T, Packed>(c, (row + r) * c.width + i) : 0.0f;
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

extern "C" cudaError_t row_norms_launch(const row_norms_call *call, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(blocks_for(call->rows, ROWS)));
    if (call->rows == 0) return cudaSuccess;
    LAUNCH_CELLS(norm_rows, call->is_bf16, call->is_packed, grid, BLOCK, 0, stream, *call);
    return cudaGetLastError();
}
