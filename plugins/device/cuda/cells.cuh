/* cells.cuh: loads and stores of activations: fp32, bf16 or fp16 in memory, fp32 in registers.
 *
 * A thread processes a pack of consecutive elements, 16 bytes of the narrower type. If all operands and rows are
 * aligned to 16 bytes, the pack moves in 128-bit loads (Wide), otherwise element by element. Both forms assign the same
 * elements to the same threads and add in the same order, so results do not depend on alignment. */
#ifndef WEFT_DEVICE_CUDA_CELLS_CUH
#define WEFT_DEVICE_CUDA_CELLS_CUH

#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "cell_bytes.h"
#include "launch.h"

typedef __nv_bfloat16 bf16;
typedef __half f16;

/* Elements per pack. */
template <typename T> struct pack {
    enum { SIZE = 16 / sizeof(T) };
};

/* ---- 16-byte words and their numbers ---- */

template <typename T> struct words;
template <> struct words<float> {
    enum { CELLS = 4 };
    static __device__ __forceinline__ void open(float *out, uint4 v) {
        out[0] = __uint_as_float(v.x), out[1] = __uint_as_float(v.y);
        out[2] = __uint_as_float(v.z), out[3] = __uint_as_float(v.w);
    }
    static __device__ __forceinline__ uint4 close(const float *in) {
        return make_uint4(__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]),
                          __float_as_uint(in[3]));
    }
    static __device__ __forceinline__ float get(float cell) {
        return cell;
    }
    static __device__ __forceinline__ float put(float x) {
        return x;
    }
};
template <> struct words<bf16> {
    enum { CELLS = 8 };
    static __device__ __forceinline__ void open_two(float *out, uint32_t word) {
        out[0] = __uint_as_float(word << 16), out[1] = __uint_as_float(word & 0xFFFF0000u);
    }
    /* Rounds to nearest even; one instruction rounds both. */
    static __device__ __forceinline__ uint32_t close_two(const float *in) {
        const __nv_bfloat162 two = __floats2bfloat162_rn(in[0], in[1]);
        uint32_t word;
        memcpy(&word, &two, sizeof word);
        return word;
    }
    static __device__ __forceinline__ void open(float *out, uint4 v) {
        open_two(out, v.x), open_two(out + 2, v.y), open_two(out + 4, v.z), open_two(out + 6, v.w);
    }
    static __device__ __forceinline__ uint4 close(const float *in) {
        return make_uint4(close_two(in), close_two(in + 2), close_two(in + 4), close_two(in + 6));
    }
    static __device__ __forceinline__ float get(bf16 cell) {
        return __bfloat162float(cell);
    }
    static __device__ __forceinline__ bf16 put(float x) {
        return __float2bfloat16_rn(x);
    }
};

template <> struct words<f16> {
    enum { CELLS = 8 };
    static __device__ __forceinline__ void open_two(float *out, uint32_t word) {
        __half2 two;
        memcpy(&two, &word, sizeof two);
        out[0] = __low2float(two), out[1] = __high2float(two);
    }
    /* Rounds to nearest even; overflow becomes infinite. */
    static __device__ __forceinline__ uint32_t close_two(const float *in) {
        const __half2 two = __floats2half2_rn(in[0], in[1]);
        uint32_t word;
        memcpy(&word, &two, sizeof word);
        return word;
    }
    static __device__ __forceinline__ void open(float *out, uint4 v) {
        open_two(out, v.x), open_two(out + 2, v.y), open_two(out + 4, v.z), open_two(out + 6, v.w);
    }
    static __device__ __forceinline__ uint4 close(const float *in) {
        return make_uint4(close_two(in), close_two(in + 2), close_two(in + 4), close_two(in + 6));
    }
    static __device__ __forceinline__ float get(f16 cell) {
        return __half2float(cell);
    }
    static __device__ __forceinline__ f16 put(float x) {
        return __float2half_rn(x);
    }
};

/* Returns x after rounding to its storage type. */
template <typename T> static __device__ __forceinline__ float rounded(float x) {
    return words<T>::get(words<T>::put(x));
}

/* ---- packs ---- */

/* out = from[at, at + N) up to n, zeros after it. N: a multiple of the elements in 16 bytes. */
template <bool Wide, int N, typename T>
static __device__ __forceinline__ void load(float (&out)[N], const T *from, int64_t at, int64_t n) {
    if (Wide && at + N <= n) {
        const uint4 *words_at = reinterpret_cast<const uint4 *>(from + at);
#pragma unroll
        for (int i = 0; i < N / words<T>::CELLS; i++) words<T>::open(out + i * words<T>::CELLS, words_at[i]);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = at + i < n ? words<T>::get(from[at + i]) : 0.0f;
}

/* Returns 16 bytes at from[at] as they are stored, zeros after n: a caller that converts them later has several
 * loads in flight. Wide: n is a multiple of their elements. */
template <bool Wide, typename T>
static __device__ __forceinline__ uint4 load_words(const T *from, int64_t at, int64_t n) {
    uint4 word = make_uint4(0, 0, 0, 0);
    if (Wide) {
        if (at < n) word = *reinterpret_cast<const uint4 *>(from + at);
    } else {
        T cells[words<T>::CELLS];
#pragma unroll
        for (int i = 0; i < words<T>::CELLS; i++) cells[i] = at + i < n ? from[at + i] : words<T>::put(0.0f);
        memcpy(&word, cells, sizeof word);
    }
    return word;
}

/* Makes the compiler keep these 16 bytes in registers, rather than the numbers converted from them. */
static __device__ __forceinline__ void keep_words(uint4 &word) {
    asm volatile("" : "+r"(word.x), "+r"(word.y), "+r"(word.z), "+r"(word.w));
}

/* Stores 16 bytes. The compiler may split an assignment into four stores, each of which touches the same sectors. */
static __device__ __forceinline__ void store_words(uint4 *to, uint4 word) {
#ifdef __CUDACC__
    asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w)
                 : "memory");
#else
    *to = word;
#endif
}

/* to[at, at + N) = in up to n, rounded once. */
template <bool Wide, int N, typename T>
static __device__ __forceinline__ void store(T *to, const float (&in)[N], int64_t at, int64_t n) {
    if (Wide && at + N <= n) {
        uint4 *words_at = reinterpret_cast<uint4 *>(to + at);
#pragma unroll
        for (int i = 0; i < N / words<T>::CELLS; i++)
            store_words(words_at + i, words<T>::close(in + i * words<T>::CELLS));
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (at + i < n) to[at + i] = words<T>::put(in[i]);
}

/* to = or += in; added before rounding. */
template <bool Wide, int N, typename T>
static __device__ __forceinline__ void store_or_add(T *to, float (&in)[N], int64_t at, int64_t n, bool accumulate) {
    if (accumulate) {
        float old[N];
        load<Wide>(old, to, at, n);
#pragma unroll
        for (int i = 0; i < N; i++) in[i] += old[i];
    }
    store<Wide>(to, in, at, n);
}

/* ---- for launchers ---- */

/* True if an operand, and rows `bytes` apart, allow 16-byte accesses; an absent operand does. */
static inline bool is_wide(const void *operand) {
    return reinterpret_cast<uintptr_t>(operand) % 16 == 0;
}
template <typename... More> static inline bool is_wide(const void *operand, More... more) {
    return is_wide(operand) && is_wide(more...);
}

static inline int64_t blocks_for(int64_t n, int64_t each) {
    return (n + each - 1) / each;
}

/* Launches one of the six instances of `kernel`. */
#define LAUNCH_CELLS_OF(T, kernel, wide, grid, block, shared, stream, ...)                                             \
    do {                                                                                                               \
        if (wide) CUDA_LAUNCH((kernel<T, true>), grid, block, shared, stream, __VA_ARGS__);                            \
        else CUDA_LAUNCH((kernel<T, false>), grid, block, shared, stream, __VA_ARGS__);                                \
    } while (0)
#define LAUNCH_CELLS(kernel, dtype, wide, grid, block, shared, stream, ...)                                            \
    do {                                                                                                               \
        if ((dtype) == WEFT_BF16) LAUNCH_CELLS_OF(bf16, kernel, wide, grid, block, shared, stream, __VA_ARGS__);       \
        else if ((dtype) == WEFT_F16) LAUNCH_CELLS_OF(f16, kernel, wide, grid, block, shared, stream, __VA_ARGS__);    \
        else LAUNCH_CELLS_OF(float, kernel, wide, grid, block, shared, stream, __VA_ARGS__);                           \
    } while (0)

#endif
