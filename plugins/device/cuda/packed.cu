/* packed.cu: unpacks blocks (weft/blocks.h) into numbers. A thread reads a 4-byte word and its scale: four 8-bit or
 * eight 4-bit numbers. If the row width is not a multiple of that count, a thread unpacks one number. */
#include "packed.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "packed_types.cuh"

namespace {

constexpr int threads = 256;

__device__ inline void store(float *to, const float (&x)[4]) {
    *reinterpret_cast<float4 *>(to) = make_float4(x[0], x[1], x[2], x[3]);
}
__device__ inline void store(float *to, const float (&x)[8]) {
    reinterpret_cast<float4 *>(to)[0] = make_float4(x[0], x[1], x[2], x[3]);
    reinterpret_cast<float4 *>(to)[1] = make_float4(x[4], x[5], x[6], x[7]);
}
__device__ inline void store(float *to, const float (&x)[1]) {
    *to = x[0];
}
template <int N> __device__ inline void store(__nv_bfloat16 *to, const float (&x)[N]) {
    __nv_bfloat162 pair[N / 2];
    for (int i = 0; i < N / 2; i++) {
        pair[i].x = __float2bfloat16_rn(x[2 * i]);
        pair[i].y = __float2bfloat16_rn(x[2 * i + 1]);
    }
    if (N == 4) *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(pair);
    if (N == 8) *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(pair);
}
__device__ inline void store(__nv_bfloat16 *to, const float (&x)[1]) {
    *to = __float2bfloat16_rn(x[0]);
}

template <int N> __device__ inline void store(__half *to, const float (&x)[N]) {
    __half2 pair[N / 2];
    for (int i = 0; i < N / 2; i++) pair[i] = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
    if (N == 4) *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(pair);
    if (N == 8) *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(pair);
}
__device__ inline void store(__half *to, const float (&x)[1]) {
    *to = __float2half_rn(x[0]);
}

template <typename Type, typename T, int N>
__global__ void __launch_bounds__(threads) unpack(T *to, const packed_rows from) {
    CUDA_SHARED(float, levels, [Type::levels + 1]);
    const int64_t i = (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x) * N;
    const int64_t row = i / from.width, number = from.first + row * from.stride + i % from.width;
    const int place = static_cast<int>(number % Type::block);
    float x[N];
    take_levels<Type>(levels);
    if (row >= from.rows) return;
    const uint32_t *at = static_cast<const uint32_t *>(from.blocks) + number / Type::block * Type::words;
    const uint32_t word = at[Type::before + place / Type::in_word];
    const float scale = Type::scale(at, place);
#pragma unroll
    for (int k = 0; k < N; k++) x[k] = scale * Type::number(word, place % Type::in_word + k, levels);
    store(to + i, x);
}

template <typename Type, typename T, int N> cudaError_t start(cudaStream_t stream, T *to, const packed_rows *from) {
    const int64_t all = (from->rows * from->width + N - 1) / N;
    CUDA_LAUNCH((unpack<Type, T, N>), static_cast<unsigned>((all + threads - 1) / threads), threads, 0, stream, to,
                *from);
    return cudaGetLastError();
}

template <typename Type, typename T> cudaError_t run(cudaStream_t stream, T *to, const packed_rows *from) {
    constexpr int N = Type::in_word;
    if (from->width % N == 0 && from->stride % N == 0 && from->first % N == 0)
        return start<Type, T, N>(stream, to, from);
    return start<Type, T, 1>(stream, to, from);
}

template <typename T> cudaError_t run_type(cudaStream_t stream, T *to, const packed_rows *from) {
    if (from->dtype == WEFT_NF4) return run<nf4>(stream, to, from);
    if (from->dtype == WEFT_NF4X64) return run<nf4x64>(stream, to, from);
    if (from->dtype == WEFT_F8X128) return run<f8x128>(stream, to, from);
    return run<i8x64>(stream, to, from);
}

} // namespace

extern "C" cudaError_t unpack_launch(cudaStream_t stream, void *to, int32_t dtype, const packed_rows *from) {
    if (dtype == WEFT_BF16) return run_type(stream, static_cast<__nv_bfloat16 *>(to), from);
    if (dtype == WEFT_F16) return run_type(stream, static_cast<__half *>(to), from);
    return run_type(stream, static_cast<float *>(to), from);
}
