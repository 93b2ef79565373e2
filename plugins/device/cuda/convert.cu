/* convert.cu: pattern fills, overlapping copies, and conversions between fp32, bf16 and fp16. Conversions round to
 * nearest even in integer arithmetic, so that a NaN has the same bits as on the CPU device. Between two 16-bit types
 * fp32 holds both exactly. */
#include "convert.h"

#include "dry_run.h"
#include "launch.h"

#include <weft/base.h>

namespace {

constexpr int threads = 256;
constexpr int per_thread = 4;

__host__ __device__ inline int64_t blocks_of(int64_t n) {
    return (n + threads * per_thread - 1) / (threads * per_thread);
}

struct half_bits {
    uint16_t bits;
};
struct bf16_bits {
    uint16_t bits;
};

__device__ inline float widen(float x) {
    return x;
}
__device__ inline float widen(bf16_bits x) {
    return __uint_as_float((uint32_t)x.bits << 16);
}
__device__ inline float widen(half_bits x) {
    const uint32_t sign = ((uint32_t)x.bits & 0x8000u) << 16, e = (x.bits >> 10) & 31u, m = x.bits & 0x3FFu;
    if (e == 0) return __uint_as_float(sign | __float_as_uint((float)m * 0x1p-24f));
    if (e == 31) return __uint_as_float(sign | 0x7F800000u | m << 13 | (m != 0 ? 0x400000u : 0u));
    return __uint_as_float(sign | (e + 112u) << 23 | m << 13);
}

__device__ inline void narrow(float *out, float x) {
    *out = x;
}
__device__ inline void narrow(bf16_bits *out, float x) {
    const uint32_t u = __float_as_uint(x), high = u >> 16;
    out->bits = (uint16_t)(x != x ? high | 0x40u : (u + 0x7FFFu + (high & 1u)) >> 16);
}
/* Below 2^-14 fp16 has steps of 2^-24, the last bit of 0.5. Above, 13 bits are dropped and the exponent bias falls by
 * 112. */
__device__ inline void narrow(half_bits *out, float x) {
    const uint32_t u = __float_as_uint(x), sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
    uint32_t h;
    if (a > 0x7F800000u) h = 0x7E00u | ((a >> 13) & 0x1FFu);
    else if (a >= 0x477FF000u) h = 0x7C00u; /* 65520 and above round to infinity */
    else if (a < (113u << 23)) h = __float_as_uint(__uint_as_float(a) + 0.5f) - __float_as_uint(0.5f);
    else h = (a + 0xFFFu + ((a >> 13) & 1u) - (112u << 23)) >> 13;
    out->bits = (uint16_t)(sign | h);
}

/* Four elements in one access if both sides are aligned. */
template <typename T> struct alignas(4 * sizeof(T)) four { T at[4]; };

template <typename To, typename From>
__global__ void __launch_bounds__(threads) convert(To *to, const From *from, int64_t n, bool wide) {
    const int64_t first = ((int64_t)blockIdx.x * threads + threadIdx.x) * per_thread;
    if (wide && first + per_thread <= n) {
        const four<From> in = *reinterpret_cast<const four<From> *>(from + first);
        four<To> out;
        for (int i = 0; i < per_thread; i++) narrow(&out.at[i], widen(in.at[i]));
        *reinterpret_cast<four<To> *>(to + first) = out;
        return;
    }
    for (int64_t i = first; i < n && i < first + per_thread; i++) narrow(to + i, widen(from[i]));
}

template <typename To, typename From> cudaError_t run(cudaStream_t stream, void *to, const void *from, int64_t n) {
    const bool wide = (uintptr_t)to % sizeof(four<To>) == 0 && (uintptr_t)from % sizeof(four<From>) == 0;
    CUDA_LAUNCH((convert<To, From>), (unsigned)blocks_of(n), threads, 0, stream, static_cast<To *>(to),
                static_cast<const From *>(from), n, wide);
    return cudaGetLastError();
}

template <typename From>
cudaError_t run_from(cudaStream_t stream, void *to, int32_t dtype_to, const void *from, int64_t n) {
    if (dtype_to == WEFT_F32) return run<float, From>(stream, to, from, n);
    if (dtype_to == WEFT_BF16) return run<bf16_bits, From>(stream, to, from, n);
    return run<half_bits, From>(stream, to, from, n);
}

__global__ void __launch_bounds__(threads) fill(uint32_t *to, uint32_t pattern, int64_t words, bool wide) {
    const int64_t first = ((int64_t)blockIdx.x * threads + threadIdx.x) * per_thread;
    if (wide && first + per_thread <= words) {
        *reinterpret_cast<uint4 *>(to + first) = make_uint4(pattern, pattern, pattern, pattern);
        return;
    }
    for (int64_t i = first; i < words && i < first + per_thread; i++) to[i] = pattern;
}

template <typename T>
__global__ void __launch_bounds__(threads) fill_rows(T *to, const float *row, int64_t rows, int64_t width, int64_t ld) {
    const int64_t i = (int64_t)blockIdx.x * threads + threadIdx.x, r = i / width, j = i % width;
    if (r < rows) narrow(to + r * ld + j, row == nullptr ? 0.0f : row[j]);
}

template <typename T>
cudaError_t run_rows(cudaStream_t stream, void *to, const float *row, int64_t rows, int64_t width, int64_t ld) {
    const int64_t blocks = (rows * width + threads - 1) / threads;
    CUDA_LAUNCH((fill_rows<T>), (unsigned)blocks, threads, 0, stream, static_cast<T *>(to), row, rows, width, ld);
    return cudaGetLastError();
}

/* One block reads a tile before it writes it, in the direction that overwrites only tiles already read. */
__global__ void __launch_bounds__(threads) move(char *to, const char *from, int64_t n) {
    const int64_t stretches = (n + threads - 1) / threads;
    for (int64_t s = 0; s < stretches; s++) {
        const int64_t i = (to < from ? s : stretches - 1 - s) * threads + threadIdx.x;
        const char x = i < n ? from[i] : 0;
        __syncthreads();
        if (i < n) to[i] = x;
        __syncthreads();
    }
}

} // namespace

extern "C" cudaError_t move_launch(cudaStream_t stream, void *to, const void *from, int64_t n) {
    CUDA_LAUNCH(move, 1, threads, 0, stream, static_cast<char *>(to), static_cast<const char *>(from), n);
    return cudaGetLastError();
}

extern "C" cudaError_t fill_launch(cudaStream_t stream, uint32_t *to, uint32_t pattern, int64_t words) {
    const bool wide = (uintptr_t)to % sizeof(uint4) == 0;
    CUDA_LAUNCH(fill, (unsigned)blocks_of(words), threads, 0, stream, to, pattern, words, wide);
    return cudaGetLastError();
}

extern "C" cudaError_t convert_launch(cudaStream_t stream, void *to, int32_t dtype_to, const void *from,
                                      int32_t dtype_from, int64_t n) {
    if (dtype_from == WEFT_F32) return run_from<float>(stream, to, dtype_to, from, n);
    if (dtype_from == WEFT_BF16) return run_from<bf16_bits>(stream, to, dtype_to, from, n);
    return run_from<half_bits>(stream, to, dtype_to, from, n);
}

extern "C" cudaError_t fill_rows_launch(cudaStream_t stream, void *to, int32_t dtype, const float *row, int64_t rows,
                                        int64_t width, int64_t ld) {
    if (dtype == WEFT_BF16) return run_rows<bf16_bits>(stream, to, row, rows, width, ld);
    if (dtype == WEFT_F16) return run_rows<half_bits>(stream, to, row, rows, width, ld);
    return run_rows<float>(stream, to, row, rows, width, ld);
}

/* Sets a C++ variable of all files' CUDA_LAUNCH for callers in C. */
extern "C" void cuda_count_launches_into(int64_t *counter) {
    cuda_counted_launches = counter;
}
