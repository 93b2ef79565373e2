/* cuda/launches.h: helpers of the test cases (C++). */
#ifndef WEFT_TEST_CUDA_LAUNCHES_H
#define WEFT_TEST_CUDA_LAUNCHES_H

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>
#include <weft_emulator.h>

#include "cases.h"

/* Fails the case: prints the line and returns 1. */
#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                             \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
#define FINE(call) MUST((call) == cudaSuccess)

/* Copy n elements to the device, and back. */
template <typename T> static T *device_array(size_t n, const std::vector<T> &with = {}) {
    T *at = nullptr;
    if (cudaMalloc(&at, n * sizeof(T)) != cudaSuccess) std::abort();
    if (!with.empty() && cudaMemcpy(at, with.data(), with.size() * sizeof(T), cudaMemcpyHostToDevice) != cudaSuccess)
        std::abort();
    if (cudaDeviceSynchronize() != cudaSuccess) std::abort();
    return at;
}
template <typename T> static std::vector<T> host_copy(const T *at, size_t n) {
    std::vector<T> out(n);
    if (cudaMemcpy(out.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost) != cudaSuccess) std::abort();
    return out;
}
static inline cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) std::abort();
    return stream;
}
static inline cudaEvent_t new_event() {
    cudaEvent_t event = nullptr;
    if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) std::abort();
    return event;
}
/* y[i] = x[i] + more. */
static __global__ void plus(float *y, const float *x, int n, float more) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = x[i] + more;
}
static inline cudaError_t add_to(float *y, const float *x, int n, float more, cudaStream_t stream) {
    CUDA_LAUNCH(plus, (n + 63) / 64, 64, 0, stream, y, x, n, more);
    return cudaGetLastError();
}

#endif
