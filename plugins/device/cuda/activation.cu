/* activation.cu: y = f(x) up or f(x), one pack per thread, and the backward. The backward's results may alias x and up:
 * a thread reads its pack of all operands before it writes. */
#include "activation.h"

#include "cells.cuh"
#include "curves.cuh"

#define BLOCK 256

template <int Form, typename T, bool Wide>
static __device__ __forceinline__ void forward(const activation_call &c, int64_t at) {
    enum { N = pack<T>::SIZE };
    float x[N], up[N], slope;
    load<Wide>(x, static_cast<const T *>(c.x), at, c.n);
    if (c.up != NULL) load<Wide>(up, static_cast<const T *>(c.up), at, c.n);
#pragma unroll
    for (int i = 0; i < N; i++) {
        activate<Form>(x[i], &x[i], &slope);
        if (c.up != NULL) x[i] *= up[i];
    }
    store<Wide>(static_cast<T *>(c.y), x, at, c.n);
}

template <int Form, typename T, bool Wide>
static __device__ __forceinline__ void backward(const activation_call &c, int64_t at) {
    enum { N = pack<T>::SIZE };
    float dy[N], x[N], up[N];
    load<Wide>(dy, static_cast<const T *>(c.dy), at, c.n);
    load<Wide>(x, static_cast<const T *>(c.x), at, c.n);
    if (c.up != NULL) load<Wide>(up, static_cast<const T *>(c.up), at, c.n);
#pragma unroll
    for (int i = 0; i < N; i++) {
        float value, slope;
        activate<Form>(x[i], &value, &slope);
        x[i] = (c.up != NULL ? dy[i] * up[i] : dy[i]) * slope;
        dy[i] *= value;
    }
    if (c.dx != NULL) store_or_add<Wide>(static_cast<T *>(c.dx), x, at, c.n, c.accumulate_dx);
    if (c.dup != NULL) store_or_add<Wide>(static_cast<T *>(c.dup), dy, at, c.n, c.accumulate_dup);
}

/* One kernel for all forms; all threads take the same branch. */
#define OF_FORM(name)                                                                                                  \
    template <typename T, bool Wide>                                                                                   \
    static __global__ void __launch_bounds__(BLOCK) activation_##name(const activation_call c) {                       \
        const int64_t at = (static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x) * pack<T>::SIZE;                   \
        if (at >= c.n) return;                                                                                         \
        switch (c.form) {                                                                                              \
        case 1: name<1, T, Wide>(c, at); break;                                                                        \
        case 2: name<2, T, Wide>(c, at); break;                                                                        \
        default: name<0, T, Wide>(c, at); break;                                                                       \
        }                                                                                                              \
    }
OF_FORM(forward)
OF_FORM(backward)

static dim3 grid_of(const activation_call *call) {
    return dim3(static_cast<unsigned>(blocks_for(call->n, BLOCK * cells_of_16(call->dtype))));
}

extern "C" cudaError_t activation_launch(const activation_call *call, cudaStream_t stream) {
    if (call->n == 0) return cudaSuccess;
    LAUNCH_CELLS(activation_forward, call->dtype, is_wide(call->x, call->up, call->y), grid_of(call), BLOCK, 0, stream,
                 *call);
    return cudaGetLastError();
}

extern "C" cudaError_t activation_backward_launch(const activation_call *call, cudaStream_t stream) {
    const bool wide = is_wide(call->x, call->up, call->dy, call->dx, call->dup);
    if (call->n == 0) return cudaSuccess;
    LAUNCH_CELLS(activation_backward, call->dtype, wide, grid_of(call), BLOCK, 0, stream, *call);
    return cudaGetLastError();
}
