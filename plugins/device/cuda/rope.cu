/* rope.cu: rotates pairs of each head. A row belongs to consecutive threads of a block, so that its heads read one line
 * of the table. A thread reads a pack of one half of a head and the paired pack before it writes, so y may alias x, and
 * before it knows the position, so that these loads do not wait. Elements after the pairs are copied. A position
 * outside the table yields NaN. */
#include "rope.h"

#include "cells.cuh"

#define MOST 256

/* line NULL: the position is outside the table. */
template <typename T, bool Wide>
static __device__ __forceinline__ void turn(const rope_call &c, int64_t first, const float *line, int64_t at, uint4 low,
                                            uint4 high) {
    enum { N = pack<T>::SIZE };
    const int64_t half = c.turned / 2;
    T *y = static_cast<T *>(c.y) + first;
    float a[N], b[N], cosine[N], sine[N];
    if (line != NULL) {
        load<Wide>(cosine, line, at, half);
        load<Wide>(sine, line + half, at, half);
    }
    words<T>::open(a, low);
    words<T>::open(b, high);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float x = a[i], z = b[i], s = line == NULL ? NAN : c.inverse ? -sine[i] : sine[i];
        const float co = line == NULL ? NAN : cosine[i];
        a[i] = x * co - z * s;
        b[i] = z * co + x * s;
    }
    store_or_add<Wide>(y, a, at, half, c.accumulate);
    store_or_add<Wide>(y + half, b, at, half, c.accumulate);
}

template <typename T, bool Wide>
static __device__ __forceinline__ void pass(const rope_call &c, int64_t first, bool is_known, int64_t at, uint4 word) {
    enum { N = pack<T>::SIZE };
    float v[N];
    words<T>::open(v, word);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = is_known ? v[i] : NAN;
    store_or_add<Wide>(static_cast<T *>(c.y) + first, v, at, c.head_dim - c.turned, c.accumulate);
}

/* lanes: threads per row. */
template <typename T, bool Wide>
static __global__ void __launch_bounds__(MOST) rope_rows(const rope_call c, int lanes) {
    enum { N = pack<T>::SIZE };
    const int rows = static_cast<int>(blockDim.x) / lanes, own = static_cast<int>(threadIdx.x) / lanes;
    const int64_t r = static_cast<int64_t>(blockIdx.x) * rows + own, half = c.turned / 2, rest = c.head_dim - c.turned;
    const int pairs = static_cast<int>((half + N - 1) / N), packs = pairs + static_cast<int>((rest + N - 1) / N);
    if (own >= rows || r >= c.rows) return;
    const int64_t position = c.positions[r];
    for (int i = static_cast<int>(threadIdx.x) - own * lanes; i < c.heads * packs; i += lanes) {
        const int head = i / packs, at = (i - head * packs) * N;
        const int64_t first = (r * c.heads + head) * c.head_dim;
        const T *x = static_cast<const T *>(c.x) + first;
        const bool turns = at < pairs * N;
        const int64_t end = turns ? half : rest;
        const int from = turns ? at : at - pairs * N;
        const uint4 low = load_words<Wide>(turns ? x : x + c.turned, from, end);
        const uint4 high = load_words<Wide>(turns ? x + half : x + c.turned, from, end);
        const bool is_known = position >= 0 && position < c.table_rows;
        if (turns) turn<T, Wide>(c, first, is_known ? c.table + position * c.turned : NULL, from, low, high);
        else pass<T, Wide>(c, first + c.turned, is_known, from, low);
    }
}

extern "C" cudaError_t rope_launch(const rope_call *call, cudaStream_t stream) {
    const int64_t n = cells_of_16(call->dtype), half = call->turned / 2;
    const int64_t packs = call->heads * (blocks_for(half, n) + blocks_for(call->head_dim - call->turned, n));
    const int lanes = static_cast<int>(packs < MOST ? packs : MOST), rows = lanes > 0 ? MOST / lanes : 1;
    const dim3 grid(static_cast<unsigned>(blocks_for(call->rows, rows)));
    const bool wide = half % n == 0 && call->head_dim % n == 0 && is_wide(call->x, call->y, call->table);
    if (call->rows == 0 || call->heads == 0) return cudaSuccess;
    if (packs > INT32_MAX) return cudaErrorInvalidValue;
    LAUNCH_CELLS(rope_rows, call->dtype, wide, grid, MOST, 0, stream, *call, lanes);
    return cudaGetLastError();
}
