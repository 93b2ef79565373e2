/* factors.cu: see factors.h. Each thread processes a pack. In dropout each thread has a counter; its four random words
 * are for elements 64 apart, so that a warp's accesses are coalesced.
 *
 * Sums over rows use runs as in row_sums.cu. Within a run eight threads share a pack of columns; then the runs are
 * added in order, and a warp's tree adds the elements of a part. */
#include "factors.h"

#include "cells.cuh"
#include "teams.cuh"

#include <weft/random.h>

#define BLOCK 256

static __device__ __forceinline__ float factor_at(const float *by, const float *over, int64_t p) {
    return over == nullptr ? by[p] : __fdiv_rn(by[p], over[p]);
}

template <typename T, bool Wide> static __global__ void __launch_bounds__(BLOCK) scale_by(const factors_call c) {
    enum { N = pack<T>::SIZE };
    const int64_t at = (static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x) * N, n = c.rows * c.width;
    float v[N];
    int64_t column = 0;
    if (at >= n) return;
    column = at % c.width;
    load<Wide>(v, static_cast<const T *>(c.x), at, n);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float shift = c.shift == nullptr ? 0.0f : c.shift[column];
        v[i] = (v[i] - shift) * factor_at(c.by, c.over, column / c.part) + shift;
        if (++column == c.width) column = 0;
    }
    store_or_add<Wide>(static_cast<T *>(c.y), v, at, n, c.accumulate);
}

extern "C" cudaError_t factors_launch(const factors_call *call, cudaStream_t stream) {
    const int64_t n = call->rows * call->width;
    const dim3 grid(static_cast<unsigned>(blocks_for(n, BLOCK * cells_of_16(call->dtype))));
    if (n == 0) return cudaSuccess;
    LAUNCH_CELLS(scale_by, call->dtype, is_wide(call->x, call->y), grid, BLOCK, 0, stream, *call);
    return cudaGetLastError();
}

/* ---- sums ---- */

#define COLUMNS   32 /* threads along the columns */
#define ROWS      8  /* threads that share a column */
#define MOST_RUNS 64
#define RUN_ROWS  64 /* minimum */

extern "C" int64_t factor_sums_runs(int64_t rows) {
    const int64_t runs = (rows + RUN_ROWS - 1) / RUN_ROWS;
    return runs < MOST_RUNS ? runs : MOST_RUNS;
}

/* Block (x, y): run x, columns of tile y. */
template <typename T, bool Wide>
static __global__ void __launch_bounds__(COLUMNS *ROWS) sum_products(const factor_sums_call c) {
    enum { N = pack<T>::SIZE };
    CUDA_SHARED(float, partial, [ROWS][COLUMNS * N]);
    const int column = static_cast<int>(threadIdx.x) % COLUMNS, part = static_cast<int>(threadIdx.x) / COLUMNS;
    const int64_t tile = static_cast<int64_t>(blockIdx.y) * COLUMNS * N, at = tile + column * N;
    const int64_t runs = gridDim.x, run = blockIdx.x;
    const int64_t begin = c.rows * run / runs, end = c.rows * (run + 1) / runs;
    float sum[N] = {0.0f};
    for (int64_t r = begin + part; r < end; r += ROWS) {
        float a[N], b[N];
        load<Wide>(a, static_cast<const T *>(c.a) + r * c.width, at, c.width);
        load<Wide>(b, static_cast<const T *>(c.b) + r * c.width, at, c.width);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float shift = c.shift == nullptr || at + i >= c.width ? 0.0f : c.shift[at + i];
            sum[i] += a[i] * (b[i] - shift);
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++) partial[part][column * N + i] = sum[i];
    __syncthreads();
    for (int j = threadIdx.x; j < COLUMNS * N && tile + j < c.width; j += COLUMNS * ROWS) {
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < ROWS; i++) total += partial[i][j];
        c.runs[run * c.width + tile + j] = total;
    }
}

/* A team of `lanes` consecutive threads sums one part. */
static __global__ void __launch_bounds__(BLOCK) add_parts(const factor_sums_call c, int64_t runs, int lanes) {
    const int64_t p = (static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x) / lanes;
    const int lane = static_cast<int>(threadIdx.x) % lanes;
    const bool there = (p + 1) * c.part <= c.width;
    float sum = 0.0f;
    for (int64_t i = lane; there && i < c.part; i += lanes) {
        float column = 0.0f;
        for (int64_t r = 0; r < runs; r++) column += c.runs[r * c.width + p * c.part + i];
        sum += column;
    }
    sum = lanes_sum(sum, lanes);
    if (!there || lane != 0) return;
    if (c.over != nullptr) sum = __fdiv_rn(sum, c.over[p]);
    c.out[p] = c.accumulate ? c.out[p] + sum : sum;
}

extern "C" cudaError_t factor_sums_launch(const factor_sums_call *call, cudaStream_t stream) {
    const int64_t runs = factor_sums_runs(call->rows), bytes = cell_bytes(call->dtype);
    const int lanes = call->part > 1 ? WARP : 1;
    const bool wide = is_wide(call->a, call->b) && call->width * bytes % 16 == 0;
    if (runs > 0) {
        const dim3 grid(static_cast<unsigned>(runs),
                        static_cast<unsigned>(blocks_for(call->width, COLUMNS * 16 / bytes)));
        LAUNCH_CELLS(sum_products, call->dtype, wide, grid, COLUMNS * ROWS, 0, stream, *call);
        if (const cudaError_t code = cudaGetLastError()) return code;
    }
    CUDA_LAUNCH((add_parts), dim3(static_cast<unsigned>(blocks_for(call->width / call->part * lanes, BLOCK))), BLOCK, 0,
                stream, *call, runs, lanes);
    return cudaGetLastError();
}

/* ---- dropout ---- */

/* Same as weft_random of weft/random.h, which device code cannot include. */
static __device__ __forceinline__ void draw(uint32_t *c, uint32_t k0, uint32_t k1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c[0], p1 = static_cast<uint64_t>(0xCD9E8D57u) * c[2];
        c[0] = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0;
        c[2] = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
        c[1] = static_cast<uint32_t>(p1);
        c[3] = static_cast<uint32_t>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

template <typename T, bool> static __global__ void __launch_bounds__(BLOCK) drop(const dropout_call c) {
    const int64_t counter = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x, b = blockIdx.y;
    const int64_t at = counter / 64 * 256 + counter % 64;
    const uint64_t row = static_cast<uint64_t>(*c.first + b), low = static_cast<uint64_t>(c.site) << 40 | counter;
    uint32_t w[4] = {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(row),
                     static_cast<uint32_t>(row >> 32)};
    if (at >= c.row) return;
    draw(w, static_cast<uint32_t>(c.seed), static_cast<uint32_t>(c.seed >> 32) ^ (WEFT_RANDOM_DROPOUT * 0x9E3779B1u));
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int64_t e = at + j * 64;
        if (e < c.row) {
            const T x = static_cast<const T *>(c.x)[b * c.row + e];
            T *const y = static_cast<T *>(c.y) + b * c.row + e;
            float v = words<T>::get(x) * (w[j] >= c.least ? c.factor : 0.0f);
            if (c.accumulate) v += words<T>::get(*y);
            *y = words<T>::put(v);
        }
    }
}

extern "C" cudaError_t dropout_launch(const dropout_call *call, cudaStream_t stream) {
    const int64_t counters = blocks_for(call->row, 256) * 64;
    const dim3 grid(static_cast<unsigned>(blocks_for(counters, BLOCK)), static_cast<unsigned>(call->batch));
    if (call->row == 0 || call->batch == 0) return cudaSuccess;
    LAUNCH_CELLS(drop, call->dtype, false, grid, BLOCK, 0, stream, *call);
    return cudaGetLastError();
}
