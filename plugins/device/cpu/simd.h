/* simd.h: a vector of VEC_LANES floats in the three instruction sets of the loops; in memory it may be bf16 or fp16.
 *
 * A loops_*.c includes it after selecting the set (LOOPS_AVX512, LOOPS_AVX2 or neither). It contains only the
 * operations that the loops use. Multiply-add is fused if the set supports it (vec_fma), and only in explicit calls:
 * the compiler contracts nothing by itself. */
#ifndef WEFT_DEVICE_CPU_SIMD_H
#define WEFT_DEVICE_CPU_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../../common/half.h"

#define INLINE static inline __attribute__((always_inline))

#if defined(LOOPS_AVX512)
#include <immintrin.h>
typedef __m512 vec;
#define VEC_LANES   16
#define VEC_COLUMNS 4 /* vectors of a row of the small matmul's tile: 6 x 4 sums, 4 of b, 1 of a */
INLINE vec vec_load(const float *p) {
    return _mm512_loadu_ps(p);
}
INLINE void vec_store(float *p, vec v) {
    _mm512_storeu_ps(p, v);
}
INLINE vec vec_set(float x) {
    return _mm512_set1_ps(x);
}
INLINE vec vec_fma(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}
INLINE vec vec_max(vec a, vec b) {
    return _mm512_max_ps(a, b); /* returns b if one is NaN */
}
INLINE vec vec_min(vec a, vec b) {
    return _mm512_min_ps(a, b);
}
/* a < b ? yes : no */
INLINE vec vec_less(vec a, vec b, vec yes, vec no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
/* 2^n from the float n + 1.5 * 2^23, whose low bits are n */
INLINE vec vec_power(vec t) {
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23), _mm512_set1_epi32(0x3F800000)));
}

#elif defined(LOOPS_AVX2)
#include <immintrin.h>
typedef __m256 vec;
#define VEC_LANES   8
#define VEC_COLUMNS 2 /* 6 x 2 sums, 2 of b, 1 of a */
INLINE vec vec_load(const float *p) {
    return _mm256_loadu_ps(p);
}
INLINE void vec_store(float *p, vec v) {
    _mm256_storeu_ps(p, v);
}
INLINE vec vec_set(float x) {
    return _mm256_set1_ps(x);
}
INLINE vec vec_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vec vec_max(vec a, vec b) {
    return _mm256_max_ps(a, b);
}
INLINE vec vec_min(vec a, vec b) {
    return _mm256_min_ps(a, b);
}
INLINE vec vec_less(vec a, vec b, vec yes, vec no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
INLINE vec vec_power(vec t) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23), _mm256_set1_epi32(0x3F800000)));
}

#else /* four lanes of the compiler's generic vectors: any machine */
typedef float vec __attribute__((vector_size(16)));
typedef int32_t vec_bits __attribute__((vector_size(16)));
#define VEC_LANES   4
#define VEC_COLUMNS 2
INLINE vec vec_load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void vec_store(float *p, vec v) {
    memcpy(p, &v, sizeof v);
}
INLINE vec vec_set(float x) {
    return (vec){x, x, x, x};
}
INLINE vec vec_fma(vec a, vec b, vec c) {
    return a * b + c;
}
INLINE vec vec_less(vec a, vec b, vec yes, vec no) {
    const vec_bits m = a < b;
    return (vec)((m & (vec_bits)yes) | (~m & (vec_bits)no));
}
INLINE vec vec_max(vec a, vec b) {
    return vec_less(b, a, a, b);
}
INLINE vec vec_min(vec a, vec b) {
    return vec_less(a, b, a, b);
}
INLINE vec vec_power(vec t) {
    return (vec)(((vec_bits)t << 23) + 0x3F800000);
}
#endif

/* Loads the first n lanes of p, with `rest` in the others, or stores the first n; 0 < n <= VEC_LANES. */
#if defined(LOOPS_AVX512)
INLINE vec vec_load_part(const float *p, int64_t n, float rest) {
    return _mm512_mask_loadu_ps(vec_set(rest), (__mmask16)((1u << n) - 1u), p);
}
INLINE void vec_store_part(float *p, vec v, int64_t n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), v);
}
#elif defined(LOOPS_AVX2)
INLINE __m256i vec_lanes_below(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vec vec_load_part(const float *p, int64_t n, float rest) {
    const __m256i m = vec_lanes_below(n);
    return _mm256_blendv_ps(vec_set(rest), _mm256_maskload_ps(p, m), _mm256_castsi256_ps(m));
}
INLINE void vec_store_part(float *p, vec v, int64_t n) {
    _mm256_maskstore_ps(p, vec_lanes_below(n), v);
}
#else
INLINE vec vec_load_part(const float *p, int64_t n, float rest) {
    float lanes[VEC_LANES];
    int64_t i;
    for (i = 0; i < VEC_LANES; i++) lanes[i] = i < n ? p[i] : rest;
    return vec_load(lanes);
}
INLINE void vec_store_part(float *p, vec v, int64_t n) {
    float lanes[VEC_LANES];
    int64_t i;
    vec_store(lanes, v);
    for (i = 0; i < n; i++) p[i] = lanes[i];
}
#endif

/* Returns the first n lanes of v, zero in the others; all of v if n >= VEC_LANES. */
INLINE vec vec_first(vec v, int64_t n) {
    float lanes[VEC_LANES];
    if (n >= VEC_LANES) return v;
    vec_store(lanes, v);
    return vec_load_part(lanes, n, 0.0f);
}

/* ---- bf16: the upper half of an fp32; narrowing to nearest even, a NaN stays one ---- */

#if defined(LOOPS_AVX512)
INLINE vec bf16_widen(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
INLINE __m256i bf16_narrow(vec v) {
    const __m512i u = _mm512_castps_si512(v), high = _mm512_srli_epi32(u, 16);
    const __m512i even = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i near = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(even, _mm512_set1_epi32(0x7FFF))), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(near, nan, high, _mm512_set1_epi32(0x40)));
}
INLINE vec bf16_load(const uint16_t *p) {
    return bf16_widen(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
INLINE void bf16_store(uint16_t *p, vec v) {
    _mm256_storeu_si256((__m256i *)(void *)p, bf16_narrow(v));
}
INLINE vec bf16_load_part(const uint16_t *p, int64_t n) {
    return bf16_widen(_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1u), p));
}
INLINE void bf16_store_part(uint16_t *p, vec v, int64_t n) {
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1u), bf16_narrow(v));
}
#else
#if defined(LOOPS_AVX2)
INLINE vec bf16_load(const uint16_t *p) {
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
INLINE void bf16_store(uint16_t *p, vec v) {
    const __m256i u = _mm256_castps_si256(v), high = _mm256_srli_epi32(u, 16);
    const __m256i even = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i near = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(even, _mm256_set1_epi32(0x7FFF))), 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i x = _mm256_blendv_epi8(near, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
#else
INLINE vec bf16_load(const uint16_t *p) {
    vec_bits u;
    int i;
    for (i = 0; i < VEC_LANES; i++) u[i] = (int32_t)((uint32_t)p[i] << 16);
    return (vec)u;
}
INLINE void bf16_store(uint16_t *p, vec v) {
    typedef uint32_t bits __attribute__((vector_size(16)));
    const bits u = (bits)v, high = u >> 16, near = (u + 0x7FFFu + (high & 1u)) >> 16, nan = (bits)(v != v);
    const bits x = (nan & (high | 0x40u)) | (~nan & near);
    int i;
    for (i = 0; i < VEC_LANES; i++) p[i] = (uint16_t)x[i];
}
#endif
INLINE vec bf16_load_part(const uint16_t *p, int64_t n) {
    uint16_t lanes[VEC_LANES] = {0};
    int64_t i;
    for (i = 0; i < n; i++) lanes[i] = p[i];
    return bf16_load(lanes);
}
INLINE void bf16_store_part(uint16_t *p, vec v, int64_t n) {
    uint16_t lanes[VEC_LANES];
    int64_t i;
    bf16_store(lanes, v);
    for (i = 0; i < n; i++) p[i] = lanes[i];
}
#endif

/* ---- fp16: to nearest even, by the processor's own conversion if the set has it ---- */

#if defined(LOOPS_AVX512)
INLINE vec f16_load(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
INLINE void f16_store(uint16_t *p, vec v) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(LOOPS_AVX2)
INLINE vec f16_load(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE void f16_store(uint16_t *p, vec v) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
INLINE vec f16_load(const uint16_t *p) {
    float lanes[VEC_LANES];
    int i;
    for (i = 0; i < VEC_LANES; i++) lanes[i] = half_widen(p[i]);
    return vec_load(lanes);
}
INLINE void f16_store(uint16_t *p, vec v) {
    float lanes[VEC_LANES];
    int i;
    vec_store(lanes, v);
    for (i = 0; i < VEC_LANES; i++) p[i] = half_narrow(lanes[i]);
}
#endif
INLINE vec f16_load_part(const uint16_t *p, int64_t n) {
    uint16_t lanes[VEC_LANES] = {0};
    int64_t i;
    for (i = 0; i < n; i++) lanes[i] = p[i];
    return f16_load(lanes);
}
INLINE void f16_store_part(uint16_t *p, vec v, int64_t n) {
    uint16_t lanes[VEC_LANES];
    int64_t i;
    f16_store(lanes, v);
    for (i = 0; i < n; i++) p[i] = lanes[i];
}

/* Load and store lanes from i on of n: complete vectors except the last. */
INLINE vec vec_get(const float *p, int64_t i, int64_t n) {
    return i + VEC_LANES <= n ? vec_load(p + i) : vec_load_part(p + i, n - i, 0.0f);
}
INLINE void vec_put(float *p, vec v, int64_t i, int64_t n) {
    if (i + VEC_LANES <= n) {
        vec_store(p + i, v);
    } else {
        vec_store_part(p + i, v, n - i);
    }
}

INLINE vec bf16_get(const uint16_t *p, int64_t i, int64_t n) {
    return i + VEC_LANES <= n ? bf16_load(p + i) : bf16_load_part(p + i, n - i);
}
INLINE void bf16_put(uint16_t *p, vec v, int64_t i, int64_t n) {
    if (i + VEC_LANES <= n) {
        bf16_store(p + i, v);
    } else {
        bf16_store_part(p + i, v, n - i);
    }
}

INLINE vec f16_get(const uint16_t *p, int64_t i, int64_t n) {
    return i + VEC_LANES <= n ? f16_load(p + i) : f16_load_part(p + i, n - i);
}
INLINE void f16_put(uint16_t *p, vec v, int64_t i, int64_t n) {
    if (i + VEC_LANES <= n) {
        f16_store(p + i, v);
    } else {
        f16_store_part(p + i, v, n - i);
    }
}

/* Adds the lanes in pairs: (0 + half), (1 + half + 1), ... until one is left. */
INLINE float vec_sum(vec v) {
    float lanes[VEC_LANES];
    int64_t i, half;
    vec_store(lanes, v);
    for (half = VEC_LANES / 2; half > 0; half /= 2) {
        for (i = 0; i < half; i++) lanes[i] += lanes[i + half];
    }
    return lanes[0];
}
INLINE float vec_largest(vec v) {
    float lanes[VEC_LANES];
    int64_t i;
    vec_store(lanes, v);
    for (i = 1; i < VEC_LANES; i++) lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
    return lanes[0];
}

/* Returns exp(x) within 1.5 units in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, the power series of exp(r) up
 * to r^7 (error 5e-9), times 2^n. Below -87.33, where the result would be subnormal, it is zero, so that a score masked
 * with -infinity has exactly zero weight. Above 88.37 it stays at exp(88.37). NaN stays NaN. */
INLINE vec vec_exp(vec x) {
    const vec magic = vec_set(12582912.0f); /* 1.5 * 2^23 */
    const vec y = vec_max(vec_set(-87.33f), vec_min(vec_set(88.37f), x));
    const vec t = vec_fma(y, vec_set(1.44269504f), magic);
    const vec n = t - magic;
    const vec high = vec_fma(n, vec_set(-0.693145752f), y); /* ln 2 in two parts; the first ends in 13 zero bits */
    const vec r = vec_fma(n, vec_set(-1.42860677e-6f), high);
    vec p = vec_set(1.0f / 5040.0f);
    p = vec_fma(p, r, vec_set(1.0f / 720.0f));
    p = vec_fma(p, r, vec_set(1.0f / 120.0f));
    p = vec_fma(p, r, vec_set(1.0f / 24.0f));
    p = vec_fma(p, r, vec_set(1.0f / 6.0f));
    p = vec_fma(p, r, vec_set(0.5f));
    p = vec_fma(p, r, vec_set(1.0f));
    p = vec_fma(p, r, vec_set(1.0f));
    return vec_less(x, vec_set(-87.33f), vec_set(0.0f), p * vec_power(t));
}

#endif
