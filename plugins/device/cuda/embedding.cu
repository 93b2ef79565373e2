/* embedding.cu: embedding lookup, and its gradient: a sum per id in row order.
 *
 * The backward first sorts row numbers by id, stably and without atomics. A block has a range of ids and scans all ids
 * in two passes. The first pass counts the ids below its range, which is the offset of its rows in the sorted order.
 * The second pass collects the rows of its range in order. From this short list each warp takes the rows of one id
 * after another. Each row of the gradient is then a separate sum, written once.
 *
 * An id outside the table yields NaN in the lookup and is ignored in the gradient. */
#include "embedding.h"

#include "cells.cuh"
#include "teams.cuh"

#define MOST 512 /* threads per row */

/* ---- lookup ---- */

template <typename Y, typename T, bool Wide>
static __global__ void __launch_bounds__(MOST) take_rows(const embedding_call c) {
    enum { N = 8 };
    const int64_t r = blockIdx.x, id = c.ids[r];
    const bool is_row = id >= 0 && id < c.vocab;
    const T *row = static_cast<const T *>(c.table) + (is_row ? id * c.width : 0);
    Y *y = static_cast<Y *>(c.y) + r * c.width;
    for (int64_t at = static_cast<int64_t>(threadIdx.x) * N; at < c.width; at += blockDim.x * N) {
        float v[N];
        if (is_row) load<Wide>(v, row, at, c.width);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = is_row ? v[i] : NAN;
        store<Wide>(y, v, at, c.width);
    }
}

/* Returns the number of threads for a row of `width` elements in packs of 8. */
static unsigned threads_along(int64_t width, int64_t most) {
    const int64_t threads = blocks_for(blocks_for(width, 8), WARP) * WARP;
    return static_cast<unsigned>(threads < most ? threads : most);
}

template <typename Y, typename T>
static cudaError_t take_launch(const embedding_call *call, bool wide, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(call->rows));
    const unsigned block = threads_along(call->width, MOST);
    if (wide) CUDA_LAUNCH((take_rows<Y, T, true>), grid, block, 0, stream, *call);
    else CUDA_LAUNCH((take_rows<Y, T, false>), grid, block, 0, stream, *call);
    return cudaGetLastError();
}

template <typename Y> static cudaError_t take_from(const embedding_call *call, bool wide, cudaStream_t stream) {
    if (call->dtype_table == WEFT_BF16) return take_launch<Y, bf16>(call, wide, stream);
    return call->dtype_table == WEFT_F16 ? take_launch<Y, f16>(call, wide, stream)
                                         : take_launch<Y, float>(call, wide, stream);
}

extern "C" cudaError_t embedding_launch(const embedding_call *call, cudaStream_t stream) {
    const bool wide = call->width % 8 == 0 && is_wide(call->table, call->y);
    if (call->rows == 0 || call->width == 0) return cudaSuccess;
    if (call->dtype == WEFT_BF16) return take_from<bf16>(call, wide, stream);
    return call->dtype == WEFT_F16 ? take_from<f16>(call, wide, stream) : take_from<float>(call, wide, stream);
}

/* ---- rows sorted by id ---- */

#define SORTERS     256 /* threads per block */
#define SORT_EACH   8   /* consecutive ids per thread and step */
#define SORT_RANGE  32  /* minimum ids per block */
#define SORT_BLOCKS 1024

static __device__ __forceinline__ int32_t lanes_count(int32_t v) {
    for (int apart = WARP / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(EVERY_LANE, v, apart);
    return v;
}

/* Returns the sum of v over the block. counts: one per warp. */
static __device__ int32_t block_count(int32_t v, int32_t *counts) {
    int32_t sum = 0;
    v = lanes_count(v);
    if (threadIdx.x % WARP == 0) counts[threadIdx.x / WARP] = v;
    __syncthreads();
    for (int i = 0; i < SORTERS / WARP; i++) sum += counts[i];
    __syncthreads();
    return sum;
}

/* Returns the sum of v over the preceding threads; all: over the block. */
static __device__ int32_t block_before(int32_t v, int32_t *counts, int32_t *all) {
    const int lane = static_cast<int>(threadIdx.x) % WARP, warp = static_cast<int>(threadIdx.x) / WARP;
    int32_t upto = v, before = 0, total = 0;
    for (int apart = 1; apart < WARP; apart *= 2) {
        const int32_t other = __shfl_up_sync(EVERY_LANE, upto, apart);
        if (lane >= apart) upto += other;
    }
    if (lane == WARP - 1) counts[warp] = upto;
    __syncthreads();
    for (int i = 0; i < SORTERS / WARP; i++) {
        if (i < warp) before += counts[i];
        total += counts[i];
    }
    __syncthreads();
    *all = total;
    return before + upto - v;
}

/* Returns the number of ids before the range [low, ...) in the order. */
static __device__ int32_t ids_below(const embedding_call &c, int64_t low, int32_t *counts) {
    int32_t below = 0;
    for (int64_t r = threadIdx.x; r < c.rows; r += SORTERS) below += c.ids[r] >= 0 && c.ids[r] < low;
    return block_count(below, counts);
}

/* Collects the rows with ids in [low, high) into `found`, in order, and returns their number. */
static __device__ int32_t collect(const embedding_call &c, int64_t low, int64_t high, int32_t *found, int32_t *counts) {
    int32_t n = 0;
    for (int64_t step = 0; step < c.rows; step += SORTERS * SORT_EACH) {
        const int64_t first = step + static_cast<int64_t>(threadIdx.x) * SORT_EACH;
        unsigned hits = 0;
        int32_t all, at;
#pragma unroll
        for (int i = 0; i < SORT_EACH; i++) {
            const int64_t id = first + i < c.rows ? c.ids[first + i] : -1;
            if (id >= low && id < high) hits |= 1u << i;
        }
        at = n + block_before(__popc(hits), counts, &all);
        for (int i = 0; i < SORT_EACH; i++)
            if ((hits >> i & 1u) != 0) found[at++] = static_cast<int32_t>(first + i);
        n += all;
    }
    return n;
}

/* Extracts one id's rows from the range's n collected ones, by a warp; `begin`: offset of the range's rows. */
static __device__ void order_id(const embedding_call &c, int64_t id, const int32_t *found, int32_t n, int32_t begin) {
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    int32_t below = 0, at;
    for (int32_t i = lane; i < n; i += WARP) below += c.ids[found[i]] < id;
    at = begin + lanes_count(below);
    if (lane == 0) c.begin[id] = at;
    for (int32_t i = 0; i < n; i += WARP) {
        const int32_t row = i + lane < n ? found[i + lane] : -1;
        const unsigned hits = __ballot_sync(EVERY_LANE, row >= 0 && c.ids[row] == id);
        const unsigned before = hits & ((1u << lane) - 1u);
        if ((hits >> lane & 1u) != 0) c.order[at + __popc(before)] = row;
        at += __popc(hits);
    }
}

static __global__ void __launch_bounds__(SORTERS) sort_rows(const embedding_call c, int64_t range) {
    CUDA_SHARED(int32_t, counts, [SORTERS / WARP]);
    const int64_t low = blockIdx.x * range, high = low + range < c.vocab ? low + range : c.vocab;
    const int32_t begin = ids_below(c, low, counts), n = collect(c, low, high, c.found + begin, counts);
    __syncthreads(); /* all rows are collected */
    for (int64_t id = low + threadIdx.x / WARP; id < high; id += SORTERS / WARP)
        order_id(c, id, c.found + begin, n, begin);
    if (high == c.vocab && threadIdx.x == 0) c.begin[c.vocab] = begin + n;
}

/* ---- sums ---- */

#define ALONG 128 /* threads along a part of a row, 8 columns each */
#define AHEAD 4   /* rows in flight at a time */

/* Block (x, y): id x, columns of part y. */
template <typename T, bool Wide>
static __global__ void __launch_bounds__(ALONG) sum_rows_of_id(const embedding_call c) {
    enum { N = 8 };
    const int64_t id = blockIdx.x, at = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
    const int32_t begin = c.begin[id], end = id == c.padding ? begin : c.begin[id + 1];
    const T *dy = static_cast<const T *>(c.dy);
    float sum[N] = {0.0f};
    int32_t i = begin;
    if (at >= c.width || (c.accumulate && begin == end)) return;
    for (; i + AHEAD <= end; i += AHEAD) {
        float v[AHEAD][N];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) load<Wide>(v[k], dy + c.order[i + k] * c.width, at, c.width);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] += v[k][j];
        }
    }
    for (; i < end; i++) {
        float v[N];
        load<Wide>(v, dy + c.order[i] * c.width, at, c.width);
#pragma unroll
        for (int j = 0; j < N; j++) sum[j] += v[j];
    }
    store_or_add<Wide>(c.dtable + id * c.width, sum, at, c.width, c.accumulate);
}

extern "C" cudaError_t embedding_backward_launch(const embedding_call *call, cudaStream_t stream) {
    const int64_t even = blocks_for(call->vocab, SORT_BLOCKS), range = even > SORT_RANGE ? even : SORT_RANGE;
    const bool wide = call->width % 8 == 0 && is_wide(call->dy, call->dtable);
    const unsigned block = threads_along(call->width, ALONG);
    const dim3 grid(static_cast<unsigned>(call->vocab), static_cast<unsigned>(blocks_for(call->width, block * 8)));
    if (call->vocab == 0 || call->width == 0) return cudaSuccess;
    CUDA_LAUNCH((sort_rows), dim3(static_cast<unsigned>(blocks_for(call->vocab, range))), SORTERS, 0, stream, *call,
                range);
    if (const cudaError_t code = cudaGetLastError()) return code;
    LAUNCH_CELLS(sum_rows_of_id, call->dtype, wide, grid, block, 0, stream, *call);
    return cudaGetLastError();
}
