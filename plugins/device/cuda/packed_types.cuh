/* packed_types.cuh: decodes the numbers of each packed type (weft/blocks.h) in kernels. */
#ifndef WEFT_DEVICE_CUDA_PACKED_TYPES_CUH
#define WEFT_DEVICE_CUDA_PACKED_TYPES_CUH

#include <stdint.h>

#include <cuda_runtime.h>

#include <weft/blocks.h>

#include "launch.h"

namespace {

__constant__ const float nf4_levels[16] = {WEFT_NF4_LEVELS};
__constant__ const float dynamic_levels[256] = {WEFT_DYNAMIC8_LEVELS};

/* in_word: numbers per word; block: numbers per block; words: words per block, the first `before` of them a header. at:
 * the block; word: one of its 4-byte words; levels: table in shared memory, for types that have one. */
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
    /* The high nibble holds the first of two numbers. */
    static __device__ float number(uint32_t word, int i, const float *levels) {
        return levels[word >> (8 * (i / 2) + (i % 2 == 0 ? 4 : 0)) & 15u];
    }
};

struct nf4x64 : nf4 {
    static constexpr int block = 64, words = 9, before = 1;
    static __device__ float scale(const uint32_t *at, int) {
        return __uint_as_float(at[0]);
    }
};

/* Copies the type's levels to shared memory; all threads of a block call it. levels: shared, with at least one
 * element. */
template <typename Type> __device__ inline void take_levels(float *levels) {
    if constexpr (Type::levels > 0) {
        if (threadIdx.x < Type::levels) levels[threadIdx.x] = nf4_levels[threadIdx.x];
        __syncthreads();
    }
}

template <typename Type> __device__ inline float packed_number(const void *blocks, int64_t at, const float *levels) {
    const uint32_t *block = static_cast<const uint32_t *>(blocks) + at / Type::block * Type::words;
    const int place = static_cast<int>(at % Type::block);
    return Type::scale(block, place) *
           Type::number(block[Type::before + place / Type::in_word], place % Type::in_word, levels);
}

} // namespace

#endif
