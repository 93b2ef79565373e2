/* square_sum.cu: see square_sum.h. Each thread sums blocks of 64 elements in order. A warp loads 32 such blocks through
 * shared memory, so that its reads are coalesced. Tree sums follow.
 *
 * The square of an fp32 number is exact in fp64, so an FMA has the same bits as a multiplication and an addition.
 *
 * The table of extents is in device memory, so the GPU counts its units first. Extents outside x or out, or more
 * elements than the call's limit, are errors: the sums are NaN, and nothing else is read or written. */
#include "square_sum.h"

#include <math.h>

#include "cells.cuh"
#include "teams.cuh"

#define BLOCK 256
#define WARPS (BLOCK / WARP)
#define HALF  (SQUARE_BLOCK / 2) /* elements of a block loaded at a time */

static __device__ __forceinline__ weft_extent extent_at(const squares_call &c, int64_t k) {
    return c.extents == NULL ? c.all : *reinterpret_cast<const weft_extent *>(c.extents + k * c.stride);
}

static __device__ __forceinline__ int64_t units_of(const squares_call &c, const weft_extent &e) {
    return (e.length + c.unit - 1) / c.unit;
}

static __device__ bool extent_fits(const squares_call &c, const weft_extent &e) {
    if (e.offset < 0 || e.length < 0 || e.out < 0) return false;
    if (e.length > c.n || e.offset > c.x_limit - e.length) return false;
    return e.out <= c.out_limit - (c.is_cells ? units_of(c, e) : 1);
}

/* ---- table of extents ---- */

/* first[k]: units before extent k. A prefix sum with doubling distances, tile by tile. */
static __global__ void __launch_bounds__(BLOCK) count_units(const squares_call c) {
    CUDA_SHARED(int64_t, units, [2][BLOCK]);
    CUDA_SHARED(int64_t, lengths, [BLOCK]);
    const int64_t me = threadIdx.x;
    int64_t before = 0, length = 0;
    int fits = 1;
    for (int64_t tile = 0; tile < c.n_extents; tile += BLOCK) {
        const bool is_extent = tile + me < c.n_extents;
        const weft_extent e = extent_at(c, is_extent ? tile + me : 0);
        const bool good = is_extent && extent_fits(c, e);
        const int64_t own = good ? units_of(c, e) : 0;
        int at = 0;
        if (is_extent && !good) fits = 0;
        length += good ? e.length : 0;
        units[0][me] = own;
        __syncthreads();
        for (int apart = 1; apart < BLOCK; apart *= 2, at = 1 - at) {
            units[1 - at][me] = units[at][me] + (me >= apart ? units[at][me - apart] : 0);
            __syncthreads();
        }
        if (is_extent) c.first[tile + me] = before + units[at][me] - own;
        before += units[at][BLOCK - 1];
        __syncthreads();
    }
    lengths[me] = length;
    fits = __syncthreads_and(fits);
    length = 0;
    for (int i = 0; i < BLOCK; i++) length += lengths[i];
    fits = fits != 0 && length <= c.n;
    for (int64_t k = me; fits == 0 && k < c.n_extents; k += BLOCK) {
        const int64_t out = extent_at(c, k).out;
        if (out >= 0 && out < c.out_limit) c.out[out] = NAN;
    }
    if (me != 0) return;
    c.first[c.n_extents] = before;
    c.first[c.n_extents + 1] = fits == 0;
}

static __device__ __forceinline__ bool table_fits(const squares_call &c) {
    return c.first[c.n_extents + 1] == 0;
}

/* Returns the last extent that starts at or before unit u; an extent without units shares its start with the next
 * one. */
static __device__ int64_t extent_of_unit(const squares_call &c, int64_t u) {
    int64_t low = 0, high = c.n_extents;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (c.first[middle] <= u) low = middle;
        else high = middle;
    }
    return low;
}

/* ---- sums ---- */

/* Sums n numbers in pairs 2i and 2i + 1, moving up an odd last one; in place, by all threads of the block. */
static __device__ double sum_by_neighbours(double *v, int64_t n) {
    for (; n > 1; n = (n + 1) / 2) {
        for (int64_t step = 0; step < (n + 1) / 2; step += BLOCK) {
            const int64_t i = step + threadIdx.x;
            double sum = 0.0;
            if (2 * i + 1 < n) sum = v[2 * i] + v[2 * i + 1];
            else if (2 * i < n) sum = v[2 * i];
            __syncthreads(); /* read before overwriting */
            if (2 * i < n) v[i] = sum;
            __syncthreads();
        }
    }
    return n == 0 ? 0.0 : v[0];
}

/* Sums this thread's block out of the 32 that its warp loads starting at x; `left`: elements available. */
static __device__ double square_block(const float *x, int64_t left, float (*staged)[HALF + 1]) {
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    double sum = 0.0;
    for (int half = 0; half < SQUARE_BLOCK; half += HALF) {
#pragma unroll 8
        for (int j = 0; j < WARP; j++) {
            const int64_t at = j * SQUARE_BLOCK + half + lane;
            staged[j][lane] = at < left ? x[at] : 0.0f;
        }
        __syncwarp();
#pragma unroll 8
        for (int i = 0; i < HALF; i++) {
            const double v = static_cast<double>(staged[lane][i]);
            sum = fma(v, v, sum);
        }
        __syncwarp();
    }
    return sum;
}

static __global__ void __launch_bounds__(BLOCK) sum_units(const squares_call c) {
    CUDA_SHARED(float, staged, [WARPS][WARP][HALF + 1]);
    CUDA_SHARED(double, sums, [SQUARE_SPAN / SQUARE_BLOCK]);
    const int64_t u = blockIdx.x;
    const int warp = static_cast<int>(threadIdx.x) / WARP, lane = static_cast<int>(threadIdx.x) % WARP;
    if (!table_fits(c) || u >= c.first[c.n_extents]) return;
    const int64_t k = extent_of_unit(c, u), i = u - c.first[k];
    const weft_extent e = extent_at(c, k);
    const int64_t left = e.length - i * c.unit, n = left < c.unit ? left : c.unit;
    const int64_t blocks = (n + SQUARE_BLOCK - 1) / SQUARE_BLOCK;
    const float *x = static_cast<const float *>(c.x) + e.offset + i * c.unit;
    for (int64_t b = warp * WARP; b < blocks; b += BLOCK) {
        const double sum = square_block(x + b * SQUARE_BLOCK, n - b * SQUARE_BLOCK, staged[warp]);
        if (b + lane < blocks) sums[b + lane] = sum;
    }
    __syncthreads();
    const double sum = sum_by_neighbours(sums, blocks);
    if (threadIdx.x == 0) (c.is_cells ? c.out[e.out + i] : c.sums[u]) = sum;
}

/* Finishes each extent: a tree over its spans, or over its existing sums, which are loaded first. */
static __global__ void __launch_bounds__(BLOCK) sum_extents(const squares_call c) {
    const int64_t k = blockIdx.x;
    if (!table_fits(c)) return;
    const weft_extent e = extent_at(c, k);
    double *v = c.sums + c.first[k];
    const int64_t n = units_of(c, e);
    if (c.is_f64)
        for (int64_t i = threadIdx.x; i < n; i += BLOCK) v[i] = static_cast<const double *>(c.x)[e.offset + i];
    __syncthreads();
    const double sum = sum_by_neighbours(v, n);
    if (threadIdx.x == 0) c.out[e.out] = sum;
}

extern "C" cudaError_t squares_launch(const squares_call *call, cudaStream_t stream) {
    if (call->n_extents == 0) return cudaSuccess;
    CUDA_LAUNCH((count_units), 1, BLOCK, 0, stream, *call);
    if (!call->is_f64 && call->most_units > 0)
        CUDA_LAUNCH((sum_units), dim3(static_cast<unsigned>(call->most_units)), BLOCK, 0, stream, *call);
    if (!call->is_cells)
        CUDA_LAUNCH((sum_extents), dim3(static_cast<unsigned>(call->n_extents)), BLOCK, 0, stream, *call);
    return cudaGetLastError();
}
