/* head.cu: zeroes rows without weight, computes the softmax of logits with its loss and gradient, and sums the losses.
 *
 * A thread block processes one row of logits. The first pass computes the largest logit and the sum of exponentials,
 * rescaling the sum when a larger logit appears. The second pass writes the gradient over the logits. A 16-bit gradient
 * takes the first half of the row: the block writes a tile after it has read the complete tile, so everything
 * overwritten has been read.
 *
 * A target outside the vocabulary in a row with weight makes the row's loss and gradient NaN. */
#include "head.h"

#include <math.h>

#include "cells.cuh"
#include "curves.cuh"
#include "ordered.cuh"
#include "teams.cuh"

#define BLOCK 256
#define MOST  1024 /* threads per row of logits */

/* ---- rows ---- */

template <typename T, bool Wide>
static __global__ void __launch_bounds__(BLOCK) take_rows_that_count(const head_chunk c) {
    enum { N = pack<T>::SIZE };
    const int64_t first = static_cast<int64_t>(blockIdx.x) * c.width;
    const bool counts = c.weights[blockIdx.x] != 0.0f;
    for (int64_t at = static_cast<int64_t>(threadIdx.x) * N; at < c.width; at += BLOCK * N) {
        float v[N] = {0.0f};
        if (counts) load<Wide>(v, static_cast<const T *>(c.x) + first, at, c.width);
        store<Wide>(static_cast<T *>(c.rows) + first, v, at, c.width);
    }
}

template <typename T, bool Wide> static __global__ void __launch_bounds__(BLOCK) clear_rows(const head_chunk c) {
    enum { N = pack<T>::SIZE };
    T *row = static_cast<T *>(c.dx) + static_cast<int64_t>(blockIdx.x) * c.width;
    const float zeros[N] = {0.0f};
    if (c.weights[blockIdx.x] != 0.0f) return;
    for (int64_t at = static_cast<int64_t>(threadIdx.x) * N; at < c.width; at += BLOCK * N)
        store<Wide>(row, zeros, at, c.width);
}

static bool rows_are_wide(const head_chunk *c, const void *operand) {
    return c->width * cell_bytes(c->dtype) % 16 == 0 && is_wide(operand);
}

extern "C" cudaError_t head_rows_launch(const head_chunk *c, cudaStream_t stream) {
    const bool wide = rows_are_wide(c, c->x) && is_wide(c->rows);
    LAUNCH_CELLS(take_rows_that_count, c->dtype, wide, dim3(static_cast<unsigned>(c->n)), BLOCK, 0, stream, *c);
    return cudaGetLastError();
}

extern "C" cudaError_t head_clear_launch(const head_chunk *c, cudaStream_t stream) {
    LAUNCH_CELLS(clear_rows, c->dtype, rows_are_wide(c, c->dx), dim3(static_cast<unsigned>(c->n)), BLOCK, 0, stream,
                 *c);
    return cudaGetLastError();
}

/* ---- logits ---- */

/* Running softmax: the largest logit, and the sum of exp(logit - largest). */
typedef struct exponentials {
    float largest, sum;
} exponentials;

/* Returns the base of the exponents. With only -inf so far, -inf - -inf would be NaN. */
static __device__ __forceinline__ float base_of(float largest) {
    return largest == -INFINITY ? 0.0f : largest;
}

static __device__ __forceinline__ exponentials together(exponentials a, exponentials b) {
    exponentials both = {fmaxf(a.largest, b.largest), 0.0f};
    const float base = base_of(both.largest);
    both.sum = a.sum * expf(a.largest - base) + b.sum * expf(b.largest - base);
    return both;
}

/* Combines over the block: a tree over each warp's lanes, then the warps in order. */
static __device__ exponentials block_exponentials(exponentials e, exponentials *of_warps) {
    const int lane = static_cast<int>(threadIdx.x) % WARP, warps = static_cast<int>(blockDim.x) / WARP;
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        const exponentials other = {__shfl_xor_sync(EVERY_LANE, e.largest, apart),
                                    __shfl_xor_sync(EVERY_LANE, e.sum, apart)};
        e = together(e, other);
    }
    if (lane == 0) of_warps[threadIdx.x / WARP] = e;
    __syncthreads();
    e = of_warps[0];
    for (int i = 1; i < warps; i++) e = together(e, of_warps[i]);
    return e;
}

/* Finishes four logits of the matmul: z = c(scale (x w^T + bias)), and the slope of c. */
static __device__ __forceinline__ void finish(const head_chunk &c, float (&z)[4], float (&slope)[4], int64_t at) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        slope[i] = 1.0f;
        if (c.bias != NULL && at + i < c.vocab) z[i] += c.bias[at + i];
        if (c.scale != 0.0f) z[i] *= c.scale;
        if (c.cap > 0.0f) z[i] = soft_cap(z[i], c.cap, &slope[i]);
    }
}

static __device__ __forceinline__ exponentials row_exponentials(const head_chunk &c, const float *row) {
    exponentials e = {-INFINITY, 0.0f};
    for (int64_t at = static_cast<int64_t>(threadIdx.x) * 4; at < c.vocab; at += blockDim.x * 4) {
        exponentials four = {-INFINITY, 0.0f};
        float z[4], slope[4], base;
        load<true>(z, row, at, c.vocab);
        finish(c, z, slope, at);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at + i < c.vocab) four.largest = fmaxf(four.largest, z[i]);
        base = base_of(four.largest);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (at + i < c.vocab) four.sum += expf(z[i] - base);
        e = together(e, four);
    }
    return e;
}

/* Stores four gradients in rows aligned to 16 bytes: 16 bytes of fp32, 8 of a 16-bit type. */
static __device__ __forceinline__ void put_four(float *row, const float (&z)[4], int64_t at, int64_t n) {
    store<true>(row, z, at, n);
}
template <typename T>
static __device__ __forceinline__ void put_four(T *row, const float (&z)[4], int64_t at, int64_t n) {
    if (at + 4 <= n) {
        *reinterpret_cast<uint2 *>(row + at) = make_uint2(words<T>::close_two(z), words<T>::close_two(z + 2));
        return;
    }
    store<false>(row, z, at, n);
}

/* Overwrites the logits with weight (softmax - [target]); weight includes the seed. All threads run the same number of
 * steps. */
template <typename T>
static __device__ __forceinline__ void put_gradient(const head_chunk &c, float *row, const exponentials &e,
                                                    int64_t target, float weight) {
    const float factor = static_cast<float>(static_cast<double>(weight) / static_cast<double>(e.sum));
    for (int64_t tile = 0; tile < c.vocab; tile += blockDim.x * 4) {
        const int64_t at = tile + static_cast<int64_t>(threadIdx.x) * 4;
        float z[4], slope[4];
        load<true>(z, row, at, c.vocab);
        finish(c, z, slope, at);
        if (sizeof(T) < sizeof *row) __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            z[i] = expf(z[i] - e.largest) * factor;
            if (at + i == target) z[i] -= weight;
            z[i] *= slope[i];
            if (c.scale != 0.0f) z[i] *= c.scale;
        }
        put_four(reinterpret_cast<T *>(row), z, at, c.vocab);
    }
}

template <typename T> static __device__ __forceinline__ void put_nothing(const head_chunk &c, float *row) {
    const float zeros[4] = {0.0f};
    for (int64_t at = static_cast<int64_t>(threadIdx.x) * 4; at < c.vocab; at += blockDim.x * 4)
        put_four(reinterpret_cast<T *>(row), zeros, at, c.vocab);
}

template <typename T> static __global__ void __launch_bounds__(MOST) row_losses(const head_chunk c) {
    CUDA_SHARED(exponentials, of_warps, [MOST_WARPS]);
    const int64_t r = blockIdx.x, target = c.targets[r];
    const bool is_target = target >= 0 && target < c.vocab;
    const float weight = is_target || c.weights[r] == 0.0f ? c.weights[r] : NAN;
    float *row = c.logits + r * c.ld;
    float own[4] = {0.0f}, slope[4];
    exponentials e;
    if (weight == 0.0f) {
        if (threadIdx.x == 0) c.loss[r] = 0.0;
        if (c.grad) put_nothing<T>(c, row);
        return;
    }
    if (threadIdx.x == 0 && is_target) {
        own[0] = row[target];
        finish(c, own, slope, target);
    }
    e = block_exponentials(row_exponentials(c, row), of_warps); /* after its barrier the row may be overwritten */
    if (threadIdx.x == 0)
        c.loss[r] = static_cast<double>(weight) *
                    (static_cast<double>(e.largest) + log(static_cast<double>(e.sum)) - static_cast<double>(own[0]));
    if (c.grad) put_gradient<T>(c, row, e, target, c.seed != NULL ? weight * *c.seed : weight);
}

extern "C" cudaError_t head_losses_launch(const head_chunk *c, cudaStream_t stream) {
    const int64_t warps = blocks_for(c->vocab, 4 * WARP);
    const unsigned block = static_cast<unsigned>(warps < MOST / WARP ? warps * WARP : MOST);
    const dim3 grid(static_cast<unsigned>(c->n));
    if (c->dtype == WEFT_BF16) CUDA_LAUNCH((row_losses<bf16>), grid, block, 0, stream, *c);
    else if (c->dtype == WEFT_F16) CUDA_LAUNCH((row_losses<f16>), grid, block, 0, stream, *c);
    else CUDA_LAUNCH((row_losses<float>), grid, block, 0, stream, *c);
    return cudaGetLastError();
}

/* ---- sum of losses ---- */

static __global__ void __launch_bounds__(ORDERED_BLOCK) add_losses(double *total, const double *losses, int64_t n) {
    const double sum = ordered_sum(losses, n);
    if (threadIdx.x == 0) *total = sum;
}

extern "C" cudaError_t head_total_launch(double *total, const double *losses, int64_t n, cudaStream_t stream) {
    CUDA_LAUNCH((add_losses), 1, ORDERED_BLOCK, 0, stream, total, losses, n);
    return cudaGetLastError();
}
