/* head.cu: zeroes rows without weight, computes the softmax of logits with its loss and gradient, and sums the losses.
 *
 * A thread block processes one row of logits, in tiles of several packs per thread, whose loads are in flight together.
 * The first pass computes the largest logit and the sum of exponentials, rescaling the sum when a larger logit appears.
 * The second pass writes the gradient over the logits. It starts with the last tile, because the end of the row is
 * still in the L2 cache: with one block of 1,024 threads on each SM, most of the row is. Its loads and stores are
 * marked for early eviction. A 16-bit gradient takes the second half of the row: the block writes a tile after it has
 * read the complete tile, so everything overwritten has been read.
 *
 * A target outside the vocabulary in a row with weight makes the row's loss and gradient NaN. */
#include "head.h"

#include <math.h>

#include "cells.cuh"
#include "curves.cuh"
#include "mma.cuh"
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

/* Returns exp(x); zero below 2^-126. */
static __device__ __forceinline__ float exponential(float x) {
    return power_of_two(x * 1.44269504f);
}

static __device__ __forceinline__ exponentials together(exponentials a, exponentials b) {
    exponentials both = {fmaxf(a.largest, b.largest), 0.0f};
    const float base = base_of(both.largest);
    both.sum = a.sum * exponential(a.largest - base) + b.sum * exponential(b.largest - base);
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

/* True if the matmul's results are the logits. */
static __device__ __forceinline__ bool is_plain(const head_chunk &c) {
    return c.bias == NULL && c.scale == 0.0f && !(c.cap > 0.0f);
}

/* Finishes a logit of the matmul: z = c(scale (x w^T + bias)), and the slope of c. */
static __device__ __forceinline__ float finish(const head_chunk &c, float z, float *slope, int64_t at) {
    *slope = 1.0f;
    if (c.bias != NULL) z += c.bias[at];
    if (c.scale != 0.0f) z *= c.scale;
    return c.cap > 0.0f ? soft_cap(z, c.cap, slope) : z;
}

/* A thread's logits of a tile: packs of four, blockDim.x packs apart. Logits that have to be finished take more
 * registers. */
template <bool Plain> struct logits {
    enum { PACKS = Plain ? 4 : 1 };
    float z[PACKS][4], slope[PACKS][4];
};

template <bool Plain> static __device__ __forceinline__ int64_t tile_width(void) {
    return static_cast<int64_t>(blockDim.x) * 4 * logits<Plain>::PACKS;
}

/* Returns the position of this thread's pack i in a tile. */
static __device__ __forceinline__ int place_of(int i) {
    return static_cast<int>(i * blockDim.x + threadIdx.x) * 4;
}

/* Returns the row's columns in the tile that begins at column `tile`. */
template <bool Plain> static __device__ __forceinline__ int tile_columns(const head_chunk &c, int64_t tile) {
    const int64_t left = c.vocab - tile, span = tile_width<Plain>();
    return static_cast<int>(left < span ? left : span);
}

/* Loads and finishes the logits; -inf after the row's end. Packs are complete, because rows are ld apart. Last: they
 * are not read again. */
template <bool Last, bool Plain>
static __device__ __forceinline__ void load_tile(logits<Plain> &v, const head_chunk &c, const float *row,
                                                 int64_t tile) {
    enum { PACKS = logits<Plain>::PACKS };
    const int n = tile_columns<Plain>(c, tile);
    const bool is_cut = n < tile_width<Plain>();
    uint4 words_of[PACKS];
    row += tile;
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int at = place_of(i) < n ? place_of(i) : 0; /* a load without a branch; its value is not used */
        const uint4 *from = reinterpret_cast<const uint4 *>(row + at);
        words_of[i] = Last ? __ldcs(from) : *from;
    }
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        words<float>::open(v.z[i], words_of[i]);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int at = place_of(i) + j;
            if (is_cut && at >= n) v.z[i][j] = -INFINITY;
            else if (!Plain) v.z[i][j] = finish(c, v.z[i][j], &v.slope[i][j], tile + at);
        }
    }
}

template <bool Plain>
static __device__ __forceinline__ exponentials row_exponentials(const head_chunk &c, const float *row) {
    enum { PACKS = logits<Plain>::PACKS };
    exponentials e = {-INFINITY, 0.0f};
    for (int64_t tile = 0; tile < c.vocab; tile += tile_width<Plain>()) {
        logits<Plain> v;
        float largest = e.largest, base;
        load_tile<false>(v, c, row, tile);
#pragma unroll
        for (int i = 0; i < PACKS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) largest = fmaxf(largest, v.z[i][j]);
        base = base_of(largest);
        e.sum *= exponential(e.largest - base);
#pragma unroll
        for (int i = 0; i < PACKS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) e.sum += exponential(v.z[i][j] - base);
        e.largest = largest;
    }
    return e;
}

/* Stores four gradients: 16 bytes of fp32, 8 of a 16-bit type. Rows are ld apart, so a pack may exceed the row. */
static __device__ __forceinline__ void put_four(float *to, const float (&z)[4]) {
    __stcs(reinterpret_cast<uint4 *>(to), words<float>::close(z));
}
template <typename T> static __device__ __forceinline__ void put_four(T *to, const float (&z)[4]) {
    __stcs(reinterpret_cast<uint2 *>(to), make_uint2(words<T>::close_two(z), words<T>::close_two(z + 2)));
}

/* Returns the row of gradients: the second half of the row of logits, or all of it. */
template <typename T> static __device__ __forceinline__ T *gradient_of(const head_chunk &c, float *row) {
    return reinterpret_cast<T *>(row) + c.ld * (sizeof *row / sizeof(T) - 1);
}

/* Overwrites the logits with weight (softmax - [target]); weight includes the seed. All threads run the same number of
 * steps. */
template <typename T, bool Plain>
static __device__ __forceinline__ void put_gradient(const head_chunk &c, float *row, const exponentials &e,
                                                    int64_t target, float weight) {
    enum { PACKS = logits<Plain>::PACKS };
    const float factor = static_cast<float>(static_cast<double>(weight) / static_cast<double>(e.sum));
    const int64_t span = tile_width<Plain>();
    for (int64_t tile = (c.vocab - 1) / span * span; tile >= 0; tile -= span) {
        logits<Plain> v;
        const int n = tile_columns<Plain>(c, tile);
        const int own = target >= tile && target < tile + n ? static_cast<int>(target - tile) : -1;
        load_tile<true>(v, c, row, tile);
        if (sizeof(T) < sizeof *row) __syncthreads();
#pragma unroll
        for (int i = 0; i < PACKS; i++) {
            const int at = place_of(i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v.z[i][j] = exponential(v.z[i][j] - e.largest) * factor;
                if (own >= 0 && at + j == own) v.z[i][j] -= weight;
                if (!Plain) v.z[i][j] *= v.slope[i][j];
                if (!Plain && c.scale != 0.0f) v.z[i][j] *= c.scale;
            }
            if (at < n) put_four(gradient_of<T>(c, row) + tile + at, v.z[i]);
        }
    }
}

template <typename T> static __device__ __forceinline__ void put_nothing(const head_chunk &c, float *row) {
    const float zeros[4] = {0.0f};
    for (int64_t at = static_cast<int64_t>(threadIdx.x) * 4; at < c.vocab; at += blockDim.x * 4)
        put_four(gradient_of<T>(c, row) + at, zeros);
}

template <typename T, bool Plain>
static __device__ __forceinline__ void row_loss(const head_chunk &c, exponentials *of_warps) {
    const int64_t r = blockIdx.x, target = c.targets[r];
    const bool is_target = target >= 0 && target < c.vocab;
    const float weight = is_target || c.weights[r] == 0.0f ? c.weights[r] : NAN;
    float *row = c.logits + r * c.ld;
    float own = 0.0f, slope;
    exponentials e;
    if (weight == 0.0f) {
        if (threadIdx.x == 0) c.loss[r] = 0.0;
        if (c.grad) put_nothing<T>(c, row);
        return;
    }
    if (threadIdx.x == 0 && is_target) own = finish(c, row[target], &slope, target);
    e = block_exponentials(row_exponentials<Plain>(c, row),
                           of_warps); /* after its barrier the row may be overwritten */
    if (threadIdx.x == 0)
        c.loss[r] = static_cast<double>(weight) *
                    (static_cast<double>(e.largest) + log(static_cast<double>(e.sum)) - static_cast<double>(own));
    if (c.grad) put_gradient<T, Plain>(c, row, e, target, c.seed != NULL ? weight * *c.seed : weight);
}

template <typename T> static __global__ void __launch_bounds__(MOST) row_losses(const head_chunk c) {
    CUDA_SHARED(exponentials, of_warps, [MOST_WARPS]);
    if (is_plain(c)) row_loss<T, true>(c, of_warps);
    else row_loss<T, false>(c, of_warps);
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
