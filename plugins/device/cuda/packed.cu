/* packed.cu: blocks of int8 with a scale (weft/blocks.h) made into numbers. A block has 17 words of four bytes: sixteen
 * threads take one each, beside the scale, so that a warp reads two whole blocks. */
#include "packed.h"

#include <cuda_bf16.h>

#include "launch.h"

namespace {

constexpr int threads = 256;
constexpr int words = 16; /* of four numbers, in a block */

__device__ inline void store(float *to, float4 x) {
    *reinterpret_cast<float4 *>(to) = x;
}
__device__ inline void store(__nv_bfloat16 *to, float4 x) {
    __nv_bfloat162 pair[2];
    pair[0].x = __float2bfloat16_rn(x.x);
    pair[0].y = __float2bfloat16_rn(x.y);
    pair[1].x = __float2bfloat16_rn(x.z);
    pair[1].y = __float2bfloat16_rn(x.w);
    *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(pair);
}

/* One of the four int8 of a word. */
__device__ inline float number(uint32_t word, int i) {
    return (float)(int8_t)(word >> (8 * i) & 0xFFu);
}

template <typename T>
__global__ void __launch_bounds__(threads)
    unpack(T *to, const uint32_t *from, int64_t rows, int64_t blocks, int64_t stride) {
    const int64_t i = (int64_t)blockIdx.x * threads + threadIdx.x;
    const int64_t block = i / words, row = block / blocks, column = block % blocks;
    const int word = (int)(i % words);
    if (row >= rows) return;
    const uint32_t *at = from + (row * stride + column) * (words + 1);
    const float scale = __uint_as_float(at[0]);
    const uint32_t q = at[1 + word];
    store(to + (block * words + word) * 4,
          make_float4(scale * number(q, 0), scale * number(q, 1), scale * number(q, 2), scale * number(q, 3)));
}

template <typename T>
cudaError_t run(cudaStream_t stream, T *to, const weft_i8x64 *from, int64_t rows, int64_t blocks, int64_t stride) {
    const int64_t all = rows * blocks * words;
    CUDA_LAUNCH((unpack<T>), (unsigned)((all + threads - 1) / threads), threads, 0, stream, to,
                reinterpret_cast<const uint32_t *>(from), rows, blocks, stride);
    return cudaGetLastError();
}

} // namespace

extern "C" cudaError_t unpack_launch(cudaStream_t stream, void *to, int32_t dtype, const weft_i8x64 *from, int64_t rows,
                                     int64_t blocks, int64_t stride) {
    if (dtype == WEFT_BF16) return run(stream, static_cast<__nv_bfloat16 *>(to), from, rows, blocks, stride);
    return run(stream, static_cast<float *>(to), from, rows, blocks, stride);
}
