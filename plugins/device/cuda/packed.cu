/* packed.cu: blocks (weft/blocks.h) made into numbers. A thread takes a word of four bytes, beside what scales it: four
 * numbers of 8 bits or eight of 4, and with rows that are no multiple of that, one number. */
#include "packed.h"

#include <cuda_bf16.h>

#include "launch.h"

namespace {

constexpr int threads = 256;

__constant__ const float nf4_levels[16] = {WEFT_NF4_LEVELS};
__constant__ const float dynamic_levels[256] = {WEFT_DYNAMIC8_LEVELS};

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

/* The types: numbers of a word, and what they are. at: of the word's first one; word: its bytes; levels: in shared
 * memory, where a type has some. */
struct i8x64 {
    static constexpr int in_word = 4, levels = 0, block = 64, words = 17, before = 1;
    static __device__ float scale(const uint32_t *at, int) {
        return __uint_as_float(at[0]);
    }
    static __device__ float number(uint32_t word, int i, const float *) {
        return static_cast<float>(static_cast<int8_t>(word >> (8 * i) & 0xFFu));
    }
};
struct f8x128 {
    static constexpr int in_word = 4, levels = 0, block = 128, words = 33, before = 1;
    static __device__ float scale(const uint32_t *at, int) {
        return __uint_as_float(at[0]);
    }
    static __device__ float number(uint32_t word, int i, const float *) {
        const uint32_t code = word >> (8 * i) & 0xFFu, size = code & 0x7Fu;
        const float x = size < 8 ? static_cast<float>(size) * 0.001953125f
                                 : __uint_as_float((size << 20) + (120u << 23));
        return __uint_as_float(__float_as_uint(x) | code >> 7 << 31 | (size == 0x7Fu ? 0x7FC00000u : 0u));
    }
};
struct nf4 {
    static constexpr int in_word = 8, levels = 16, block = 1024, words = 134, before = 6;
    static __device__ float scale(const uint32_t *at, int i) {
        const uint32_t code = at[2 + i / 256] >> (i / 64 % 4 * 8) & 0xFFu;
        return __fadd_rn(__fmul_rn(dynamic_levels[code], __uint_as_float(at[0])), __uint_as_float(at[1]));
    }
    /* The first of two numbers is the upper half of their byte. */
    static __device__ float number(uint32_t word, int i, const float *levels) {
        return levels[word >> (8 * (i / 2) + (i % 2 == 0 ? 4 : 0)) & 15u];
    }
};

template <typename Type, typename T, int N>
__global__ void __launch_bounds__(threads) unpack(T *to, const packed_rows from) {
    CUDA_SHARED(float, levels, [Type::levels + 1]);
    const int64_t i = (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x) * N;
    const int64_t row = i / from.width, number = from.first + row * from.stride + i % from.width;
    const int place = static_cast<int>(number % Type::block);
    float x[N];
    if constexpr (Type::levels > 0) {
        if (threadIdx.x < Type::levels) levels[threadIdx.x] = nf4_levels[threadIdx.x];
        __syncthreads();
    }
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
    if (from->dtype == WEFT_F8X128) return run<f8x128>(stream, to, from);
    return run<i8x64>(stream, to, from);
}

} // namespace

extern "C" cudaError_t unpack_launch(cudaStream_t stream, void *to, int32_t dtype, const packed_rows *from) {
    if (dtype == WEFT_BF16) return run_type(stream, static_cast<__nv_bfloat16 *>(to), from);
    return run_type(stream, static_cast<float *>(to), from);
}
