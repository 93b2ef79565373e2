/* add.cu: y = a + b, one pack per thread. y may alias a or b, so no operand is read through the read-only cache. */
#include "add.h"

#include "cells.cuh"

#define BLOCK 256

template <typename T, bool Wide> static __global__ void __launch_bounds__(BLOCK) add_cells(const add_call c) {
    enum { N = pack<T>::SIZE };
    const int64_t at = (static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x) * N;
    float a[N], b[N];
    if (at >= c.n) return;
    load<Wide>(a, static_cast<const T *>(c.a), at, c.n);
    load<Wide>(b, static_cast<const T *>(c.b), at, c.n);
#pragma unroll
    for (int i = 0; i < N; i++) a[i] += b[i];
    store<Wide>(static_cast<T *>(c.y), a, at, c.n);
}

extern "C" cudaError_t add_launch(const add_call *call, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(blocks_for(call->n, BLOCK * cells_of_16(call->dtype))));
    if (call->n == 0) return cudaSuccess;
    LAUNCH_CELLS(add_cells, call->dtype, is_wide(call->a, call->b, call->y), grid, BLOCK, 0, stream, *call);
    return cudaGetLastError();
}
