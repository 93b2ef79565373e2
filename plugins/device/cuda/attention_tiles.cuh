/* attention_tiles.cuh: attention tiles: rows of one head in shared memory, and a warp's matmuls with 16 rows.
 *
 * A tile has ROWS rows of D elements; elements after head_dim are zero. Each row has 16 bytes of padding. Rows are then
 * an odd multiple of 16 bytes apart, and eight rows read at the same column use different banks. A warp multiplies its
 * own 16 rows:
 *
 *     scores        s (16, N)    = a (16, D) b (N, D)^T
 *     add_products  sums (16, D) += p (16, N) b (N, D)
 *
 * s, p and sums are distributed over the lanes: each has ROWS of the 16 rows, and half as many numbers as columns
 * (`lanes` defines the mapping). 16-bit types use tensor-core instructions, fp32 uses plain ones. p is fp32 as a factor
 * too. For 16-bit types it enters as two factors, the rounded p and the rounding error: 16 bits of precision with bf16,
 * 22 with fp16. */
#ifndef WEFT_DEVICE_CUDA_ATTENTION_TILES_CUH
#define WEFT_DEVICE_CUDA_ATTENTION_TILES_CUH

#include <limits.h>

#include <type_traits>

#include "attention.h"
#include "cells.cuh"
#include "mma.cuh"

#define WARP_ROWS 16
#define LOG2_E    1.4426950408889634f
#define LN_2      0.6931471805599453f

/* Elements between rows of a tile. */
template <typename T, int D> struct tile {
    enum { PITCH = D + words<T>::CELLS };
};

static __device__ __forceinline__ int lane_index(void) {
    return static_cast<int>(threadIdx.x) % 32;
}
static __device__ __forceinline__ int warp_index(void) {
    return static_cast<int>(threadIdx.x) / 32;
}

/* ---- mapping of numbers to lanes ---- */

template <typename T> struct lanes;
struct lanes_of_halves {
    enum { ROWS = 2, ACROSS = 4 }; /* ACROSS: lanes that share a row */
    static __device__ __forceinline__ int row(int slot) {
        return lane_index() / 4 + slot * 8;
    }
    static __device__ __forceinline__ int slot(int i) {
        return i / 2 % 2;
    }
    static __device__ __forceinline__ int column(int i) {
        return i / 4 * 8 + lane_index() % 4 * 2 + i % 2;
    }
    static __device__ __forceinline__ int sum_slot(int i) {
        return slot(i);
    }
    static __device__ __forceinline__ int sum_column(int i) {
        return column(i);
    }
};
template <> struct lanes<bf16> : lanes_of_halves {};
template <> struct lanes<f16> : lanes_of_halves {};
template <> struct lanes<float> {
    enum { ROWS = 4, ACROSS = 8 };
    static __device__ __forceinline__ int row(int slot) {
        return lane_index() / 8 + slot * 4;
    }
    static __device__ __forceinline__ int slot(int i) {
        return i % 4;
    }
    static __device__ __forceinline__ int column(int i) {
        return i / 4 * 8 + lane_index() % 8;
    }
    static __device__ __forceinline__ int sum_slot(int i) {
        return i / 4 % 4;
    }
    static __device__ __forceinline__ int sum_column(int i) {
        return i / 16 * 32 + lane_index() % 8 * 4 + i % 4;
    }
};

template <typename T> static __device__ __forceinline__ float row_maximum(float x) {
#pragma unroll
    for (int mask = 1; mask < lanes<T>::ACROSS; mask *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, mask));
    return x;
}
template <typename T> static __device__ __forceinline__ float row_sum(float x) {
#pragma unroll
    for (int mask = 1; mask < lanes<T>::ACROSS; mask *= 2) x += __shfl_xor_sync(~0u, x, mask);
    return x;
}
static __device__ __forceinline__ int warp_minimum(int x) {
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) x = min(x, __shfl_xor_sync(~0u, x, mask));
    return x;
}

/* ---- between global and shared memory ---- */

/* Loads rows [0, n) of `from`, ld elements apart, by all threads of the block. wide: in 16-byte asynchronous copies,
 * complete after copy_async_wait. */
template <typename T, int D, int ROWS, int THREADS>
static __device__ __forceinline__ void tile_load(T *to, const T *from, int64_t ld, int64_t n, int d, bool wide) {
    enum { CELLS = words<T>::CELLS, CHUNKS = D / CELLS };
#pragma unroll 1 /* unrolling costs registers for addresses, and the copies are asynchronous anyway */
    for (int i = static_cast<int>(threadIdx.x); i < ROWS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, at = i % CHUNKS * CELLS;
        T *out = to + row * tile<T, D>::PITCH + at;
        const bool there = row < n && at < d;
        const T *in = there ? from + row * ld + at : from;
        if (wide) {
            copy_async(out, in, there ? 16 : 0);
            continue;
        }
#pragma unroll
        for (int e = 0; e < CELLS; e++) out[e] = there && at + e < d ? in[e] : words<T>::put(0.0f);
    }
}

/* Stores sums times their row's factor to rows [0, n) of `to`, through this warp's own rows of a tile. */
template <typename T, int D>
static __device__ __forceinline__ void sums_store(T *own, const float (&sums)[D / 2], const float *factor, T *to,
                                                  int64_t ld, int64_t n, int d, bool wide) {
    enum { CELLS = words<T>::CELLS, CHUNKS = D / CELLS, PITCH = tile<T, D>::PITCH };
    __syncwarp();
#pragma unroll
    for (int i = 0; i < D / 2; i++) {
        const int slot = lanes<T>::sum_slot(i);
        own[lanes<T>::row(slot) * PITCH + lanes<T>::sum_column(i)] = words<T>::put(sums[i] * factor[slot]);
    }
    __syncwarp();
#pragma unroll 2
    for (int i = lane_index(); i < WARP_ROWS * CHUNKS; i += 32) {
        const int row = i / CHUNKS, at = i % CHUNKS * CELLS;
        const T *in = own + row * PITCH + at;
        T *out = to + row * ld + at;
        if (row >= n || at >= d) continue;
        if (wide) {
            *reinterpret_cast<uint4 *>(out) = *reinterpret_cast<const uint4 *>(in);
            continue;
        }
#pragma unroll
        for (int e = 0; e < CELLS; e++)
            if (at + e < d) out[e] = in[e];
    }
}

/* ---- left factor of scores ---- */

/* A warp's 16 rows: a pointer to them, or, if HELD, registers. */
template <typename T, int D, bool HELD> struct left_rows {
    const T *rows;
    __device__ __forceinline__ void take(const T *a) {
        rows = a;
    }
};

/* ---- matmuls in bf16 and fp16 ---- */

/* Enables a function for 16-bit types; fp32 has its own version. */
template <typename T> using if_half = typename std::enable_if<sizeof(T) == 2>::type;

static __device__ __forceinline__ void multiply(float *d, const uint32_t *a, const uint32_t *b, const bf16 *) {
    mma_bf16(d, a, b);
}
static __device__ __forceinline__ void multiply(float *d, const uint32_t *a, const uint32_t *b, const f16 *) {
    mma_f16(d, a, b);
}

/* Loads 16 columns of 16 rows as a left factor. */
template <int D, typename T> static __device__ __forceinline__ void left_words(uint32_t *out, const T *a, int step) {
    mma_load(out, a + lane_index() % 16 * tile<T, D>::PITCH + step * 16 + lane_index() / 16 * 8);
}
template <typename T, int D> struct left_rows<T, D, true> {
    uint32_t words[D / 16][4];
    __device__ __forceinline__ void take(const T *a) {
#pragma unroll
        for (int step = 0; step < D / 16; step++) left_words<D>(words[step], a, step);
    }
};

/* Adds the products of 16 columns of a and b. */
template <int N, int D, typename T>
static __device__ __forceinline__ void scores_step(float (&s)[N / 2], const uint32_t *a, const T *b, int step) {
    const int row = lane_index() % 8 + lane_index() / 16 * 8, column = lane_index() / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < N / 16; n++) {
        uint32_t two[4];
        mma_load(two, b + (n * 16 + row) * tile<T, D>::PITCH + step * 16 + column);
        multiply(s + n * 8, a, two, b);
        multiply(s + n * 8 + 4, a, two + 2, b);
    }
}
template <int N, int D, typename T, typename = if_half<T>>
static __device__ __forceinline__ void scores(float (&s)[N / 2], const left_rows<T, D, true> &a, const T *b) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) s[i] = 0;
#pragma unroll
    for (int step = 0; step < D / 16; step++) scores_step<N, D>(s, a.words[step], b, step);
}
template <int N, int D, typename T, typename = if_half<T>>
static __device__ __forceinline__ void scores(float (&s)[N / 2], const left_rows<T, D, false> &a, const T *b) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) s[i] = 0;
#pragma unroll 2 /* full unrolling takes too many registers */
    for (int step = 0; step < D / 16; step++) {
        uint32_t four[4];
        left_words<D>(four, a.rows, step);
        scores_step<N, D>(s, four, b, step);
    }
}

/* Rounds two consecutive numbers of p, and rounds the remaining error too. */
template <typename T> static __device__ __forceinline__ void split(uint32_t &high, uint32_t &low, const float *p) {
    float near[2], rest[2];
    high = words<T>::close_two(p);
    words<T>::open_two(near, high);
    rest[0] = p[0] - near[0], rest[1] = p[1] - near[1];
    low = words<T>::close_two(rest);
}

template <int N, int D, typename T, typename = if_half<T>>
static __device__ __forceinline__ void add_products(float (&sums)[D / 2], const float (&p)[N / 2], const T *b,
                                                    float *) {
    const int row = lane_index() % 16, column = lane_index() / 16 * 8;
#pragma unroll
    for (int step = 0; step < N / 16; step++) {
        uint32_t high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; i++) split<T>(high[i], low[i], p + step * 8 + i * 2);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t two[4];
            mma_load_transposed(two, b + (step * 16 + row) * tile<T, D>::PITCH + n * 16 + column);
            multiply(sums + n * 8, high, two, b);
            multiply(sums + n * 8 + 4, high, two + 2, b);
            multiply(sums + n * 8, low, two, b);
            multiply(sums + n * 8 + 4, low, two + 2, b);
        }
    }
}

/* ---- matmuls in fp32 ---- */

static __device__ __forceinline__ float4 four_at(const float *at) {
    return *reinterpret_cast<const float4 *>(at);
}

template <int N, int D>
static __device__ __forceinline__ void scores(float (&s)[N / 2], const left_rows<float, D, false> &a, const float *b) {
    enum { PITCH = tile<float, D>::PITCH };
#pragma unroll
    for (int i = 0; i < N / 2; i++) s[i] = 0;
#pragma unroll 1
    for (int c = 0; c < D; c += 4) {
        float4 left[4];
#pragma unroll
        for (int slot = 0; slot < 4; slot++) left[slot] = four_at(a.rows + lanes<float>::row(slot) * PITCH + c);
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            const float4 right = four_at(b + lanes<float>::column(n * 4) * PITCH + c);
#pragma unroll
            for (int slot = 0; slot < 4; slot++) {
                float &sum = s[n * 4 + slot];
                sum += left[slot].x * right.x;
                sum += left[slot].y * right.y;
                sum += left[slot].z * right.z;
                sum += left[slot].w * right.w;
            }
        }
    }
}

/* Floats of a warp's scratch, which passes p between lanes. */
template <typename T, int N> struct scratch {
    enum { PITCH = N + 8, SIZE = sizeof(T) == 4 ? WARP_ROWS * PITCH : 0 };
};

template <int D>
static __device__ __forceinline__ void add_row(float (&sums)[D / 2], const float (&p)[4], const float *b) {
#pragma unroll
    for (int n = 0; n < D / 32; n++) {
        const float4 right = four_at(b + n * 32 + lane_index() % 8 * 4);
#pragma unroll
        for (int slot = 0; slot < 4; slot++) {
            float *sum = sums + n * 16 + slot * 4;
            sum[0] += p[slot] * right.x;
            sum[1] += p[slot] * right.y;
            sum[2] += p[slot] * right.z;
            sum[3] += p[slot] * right.w;
        }
    }
}
template <int N, int D>
static __device__ __forceinline__ void add_products(float (&sums)[D / 2], const float (&p)[N / 2], const float *b,
                                                    float *room) {
    enum { PITCH = scratch<float, N>::PITCH };
    __syncwarp();
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        room[lanes<float>::row(lanes<float>::slot(i)) * PITCH + lanes<float>::column(i)] = p[i];
    __syncwarp();
#pragma unroll 4
    for (int n = 0; n < N; n++) {
        float left[4];
#pragma unroll
        for (int slot = 0; slot < 4; slot++) left[slot] = room[lanes<float>::row(slot) * PITCH + n];
        add_row<D>(sums, left, b + n * tile<float, D>::PITCH);
    }
}

#endif
