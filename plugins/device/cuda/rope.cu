/* rope.cu: rotates pairs of each head. A block has a row, and all its heads read the same line of the table. A thread
 * reads a pack of one half of a head and the paired pack before it writes, so y may alias x. Elements after the pairs
 * are copied. A position outside the table yields NaN. */
#include "rope.h"

#include "cells.cuh"

#define MOST 256

template <typename T, bool Wide>
static __device__ __forceinline__ void turn(const rope_call &c, int64_t first, const float *line, int64_t at) {
    enum { N = pack<T>::SIZE };
    const int64_t half = c.turned / 2;
    const T *x = static_cast<const T *>(c.x) + first;
    T *y = static_cast<T *>(c.y) + first;
    float a[N], b[N], cosine[N], sine[N];
    load<Wide>(a, x, at, half);
    load<Wide>(b, x + half, at, half);
    load<Wide>(cosine, line, at, half);
    load<Wide>(sine, line + half, at, half);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float low = a[i], high = b[i], s = c.inverse ? -sine[i] : sine[i];
        a[i] = low * cosine[i] - high * s;
        b[i] = high * cosine[i] + low * s;
    }
    store_or_add<Wide>(y, a, at, half, c.accumulate);
    store_or_add<Wide>(y + half, b, at, half, c.accumulate);
}

template <typename T, bool Wide>
static __device__ __forceinline__ void pass(const rope_call &c, int64_t first, int64_t at) {
    enum { N = pack<T>::SIZE };
    float v[N];
    load<Wide>(v, static_cast<const T *>(c.x) + first + c.turned, at, c.head_dim - c.turned);
    store_or_add<Wide>(static_cast<T *>(c.y) + first + c.turned, v, at, c.head_dim - c.turned, c.accumulate);
}

template <typename T, bool Wide> static __global__ void __launch_bounds__(MOST) rope_rows(const rope_call c) {
    enum { N = pack<T>::SIZE };
    const int64_t r = blockIdx.x, position = c.positions[r], half = c.turned / 2;
    const int64_t pairs = (half + N - 1) / N, packs = pairs + (c.head_dim - c.turned + N - 1) / N;
    if (position < 0 || position >= c.table_rows) {
        T *y = static_cast<T *>(c.y) + r * c.heads * c.head_dim;
        for (int64_t i = threadIdx.x; i < c.heads * c.head_dim; i += blockDim.x) y[i] = words<T>::put(NAN);
        return;
    }
    for (int64_t i = threadIdx.x; i < c.heads * packs; i += blockDim.x) {
        const int64_t head = i / packs, at = i - head * packs, first = (r * c.heads + head) * c.head_dim;
        if (at < pairs) turn<T, Wide>(c, first, c.table + position * c.turned, at * N);
        else pass<T, Wide>(c, first, (at - pairs) * N);
    }
}

extern "C" cudaError_t rope_launch(const rope_call *call, cudaStream_t stream) {
    const int64_t n = cells_of_16(call->dtype), half = call->turned / 2;
    const int64_t packs = call->heads * (blocks_for(half, n) + blocks_for(call->head_dim - call->turned, n));
    const int64_t warps = blocks_for(packs, 32);
    const unsigned block = static_cast<unsigned>(32 * (warps < MOST / 32 ? warps : MOST / 32));
    const bool wide = half % n == 0 && call->head_dim % n == 0 && is_wide(call->x, call->y, call->table);
    if (call->rows == 0 || call->heads == 0) return cudaSuccess;
    LAUNCH_CELLS(rope_rows, call->dtype, wide, dim3(static_cast<unsigned>(call->rows)), block, 0, stream, *call);
    return cudaGetLastError();
}
