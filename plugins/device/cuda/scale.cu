/* scale.cu: y = or += c(factor x), one pack per thread. */
#include "scale.h"

#include "cells.cuh"
#include "curves.cuh"

#define BLOCK 256

template <typename T, bool Wide> static __global__ void __launch_bounds__(BLOCK) scale_cells(const scale_call c) {
    enum { N = pack<T>::SIZE };
    const int64_t at = (static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x) * N;
    float v[N], slope;
    if (at >= c.n) return;
    load<Wide>(v, static_cast<const T *>(c.x), at, c.n);
#pragma unroll
    for (int i = 0; i < N; i++) {
        v[i] *= c.factor;
        if (c.cap > 0.0f) v[i] = soft_cap(v[i], c.cap, &slope);
    }
    store_or_add<Wide>(static_cast<T *>(c.y), v, at, c.n, c.accumulate);
}

extern "C" cudaError_t scale_launch(const scale_call *call, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(blocks_for(call->n, BLOCK * cells_of_16(call->dtype))));
    if (call->n == 0) return cudaSuccess;
    LAUNCH_CELLS(scale_cells, call->dtype, is_wide(call->x, call->y), grid, BLOCK, 0, stream, *call);
    return cudaGetLastError();
}
