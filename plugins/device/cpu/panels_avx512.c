/* panels_avx512.c: matmuls of packed panels (panels.h) on AVX-512: in fp32, in bf16 and fp16 widened to fp32 when
 * packed, and in bf16 pairs. Runs only after a check of the processor; pairs need their own check.
 *
 * Measured on one core of a Zen 5: 24 sums in registers reach 97 % of the register peak, fp32 and bf16. On a Cascade
 * Lake with an L1 of 32 KB they reach 94 to 98 % with panels in L2, because the loop prefetches their lines. Before,
 * they reached 78 % if both operands were packed. The bf16 instruction treats values below 2^-126 as zero. */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,prfchw")
#define LOOPS_AVX512
#include "panels.h"
#include "simd.h"

#define BLOCK_ROWS    8
#define BLOCK_VECTORS 3 /* 8 x 3 sums, 3 of b, 1 of a */
#define BLOCK_TAIL    BLOCK_ROWS
#define SLAB_ROWS     PANEL_LANES
#define LOOP_WORDS    2 /* with four, gcc 12 moves sums between registers */
#define CUT_WORDS     0 /* slower: a chunk of 48 columns would have 96 words */
#define STRIP         (12 * BLOCK_ROWS)

INLINE vec spread_word(const char *at) {
    int word = 0;
    memcpy(&word, at, sizeof word);
    return _mm512_castsi512_ps(_mm512_set1_epi32(word));
}
INLINE void multiply_word(vec *sum, vec left, vec right, const int values) {
    if (values == 2) {
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(*sum) : "v"(left), "v"(right));
    } else {
        __asm__("vfmadd231ps %2, %1, %0" : "+v"(*sum) : "v"(left), "v"(right));
    }
}
INLINE void vec_pass(float *p, vec v) {
    _mm512_stream_ps(p, v);
}

#include "panels_body.h"
#include "panels_words.h"

/* ---- packing ---- */

/* n > 0 may exceed a register. */
INLINE __m512i load_32(const uint32_t *p, int64_t n) {
    if (n >= 16) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1u), p);
}

/* Loads a lane's words from w on, zeros after the last. values: per word; a single 16-bit value per word is widened. */
INLINE __m512i load_words(const char *at, int64_t w, int64_t k, const int values, const int32_t dtype) {
    if (values == 1 && dtype != WEFT_F32) return _mm512_castps_si512(panel_values(at, w, k, dtype));
    if (values == 2) return words_load((const uint16_t *)(const void *)at + w * 2, k - w * 2);
    return load_32((const uint32_t *)(const void *)at + w, k - w);
}

/* Packs one slab of lanes whose values are contiguous. */
INLINE void pack_along(uint32_t *slab, const panel_source *from, int64_t first, const int values, const int32_t dtype) {
    const int64_t bytes = panel_value_bytes(dtype), row = from->ld * bytes, lanes = from->lanes - first;
    const int64_t n_words = (from->k + values - 1) / values;
    const char *at = (const char *)from->at + first * row;
    __m512i lane[16];
    int64_t w, i;
    for (w = 0; w < n_words; w += 16) {
        if (lanes >= 16 && from->k - w * values >= 16 * values) {
#pragma GCC unroll 16
            for (i = 0; i < 16; i++) {
                /* the next slab's; past the end it has no effect */
                _mm_prefetch(at + (i + 16) * row + w * values * bytes, _MM_HINT_T0);
                lane[i] = load_words(at + i * row, w, w * values + 16 * values, values, dtype);
            }
        } else {
            for (i = 0; i < 16; i++)
                lane[i] = i < lanes ? load_words(at + i * row, w, from->k, values, dtype) : _mm512_setzero_si512();
        }
        words_turn(slab + w * 16, lane);
    }
}

/* Packs two slabs, or the last one, of bf16 lanes stored next to each other: two rows are interleaved into pairs. */
static void pack_across_bf16(uint32_t *slab, int64_t room, const uint16_t *from, int64_t ld, int64_t lanes, int64_t k) {
    int64_t p;
    for (p = 0; p < k; p += 2) {
        const words odd = p + 1 < k ? words_load(from + (p + 1) * ld, lanes) : _mm512_setzero_si512();
        words low, high;
        words_join(&low, &high, words_load(from + p * ld, lanes), odd);
        words_store(slab + p / 2 * 16, low);
        if (lanes > 16) words_store(slab + room * 16 + p / 2 * 16, high);
    }
}

INLINE void pack_single(uint32_t *panel, const panel_source *from, const int32_t dtype) {
    int64_t i;
    if (!from->along) {
        pack_across(panel, from, dtype);
        return;
    }
    for (i = 0; i < from->lanes; i += 16) pack_along(panel + i * panel_room(from->k), from, i, 1, dtype);
}
static void pack_f32(uint32_t *panel, const panel_source *from) {
    pack_single(panel, from, WEFT_F32);
}
static void pack_widened(uint32_t *panel, const panel_source *from) {
    pack_single(panel, from, WEFT_BF16);
}
static void pack_half(uint32_t *panel, const panel_source *from) {
    pack_single(panel, from, WEFT_F16);
}

static void pack_bf16(uint32_t *panel, const panel_source *from) {
    const int64_t room = panel_room((from->k + 1) / 2), step = from->along ? 16 : 32;
    int64_t i;
    for (i = 0; i < from->lanes; i += step) {
        if (from->along) {
            pack_along(panel + i * room, from, i, 2, WEFT_BF16);
        } else {
            pack_across_bf16(panel + i * room, room, (const uint16_t *)from->at + i, from->ld, from->lanes - i,
                             from->k);
        }
    }
}

static void multiply_bf16(const panel_block *p) {
    multiply(p, 2);
}

static double peak_bf16(float *left, int64_t rounds) {
    vec sum[BLOCK_ROWS * BLOCK_VECTORS], pairs = vec_set(0.0f);
    int64_t round;
    int i;
    __asm__("" : "+v"(pairs)); /* hides from the compiler that they are zero */
#pragma GCC unroll 24
    for (i = 0; i < BLOCK_ROWS * BLOCK_VECTORS; i++) sum[i] = vec_set(0.0f);
    for (round = 0; round < rounds; round++) {
#pragma GCC unroll 24
        for (i = 0; i < BLOCK_ROWS * BLOCK_VECTORS; i++) multiply_word(&sum[i], pairs, pairs, 2);
    }
    for (i = 1; i < BLOCK_ROWS * BLOCK_VECTORS; i++) sum[0] += sum[i];
    *left = vec_sum(sum[0]);
    return (double)rounds * BLOCK_ROWS * BLOCK_VECTORS * VEC_LANES * 4; /* two of each kind per lane */
}

INLINE vec pair_step(vec left, vec right, vec sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)left, (__m512bh)right);
}
#define SMALL_STEP pair_step
#include "loops_small.h"

const cpu_panels cpu_panels_f32_avx512 = {.pack_a = pack_f32,
                                          .pack_b = pack_f32,
                                          .multiply = multiply_f32,
                                          .values = 1,
                                          .rows_of_a = SLAB_ROWS,
                                          .strip = STRIP,
                                          .rows = 16,
                                          .inner = 1};
const cpu_panels cpu_panels_wide_avx512 = {.pack_a = pack_widened,
                                           .pack_b = pack_widened,
                                           .multiply = multiply_f32,
                                           .values = 1,
                                           .rows_of_a = SLAB_ROWS,
                                           .strip = STRIP,
                                           .rows = 16,
                                           .inner = 1};
const cpu_panels cpu_panels_half_avx512 = {.pack_a = pack_half,
                                           .pack_b = pack_half,
                                           .multiply = multiply_f32,
                                           .values = 1,
                                           .rows_of_a = SLAB_ROWS,
                                           .strip = STRIP,
                                           .rows = 16,
                                           .inner = 1};
const cpu_panels cpu_panels_bf16_avx512 = {.pack_a = pack_bf16,
                                           .pack_b = pack_bf16,
                                           .rows_of_a = SLAB_ROWS,
                                           .multiply = multiply_bf16,
                                           .small = loop_small,
                                           .peak = peak_bf16,
                                           .values = 2,
                                           .strip = STRIP,
                                           .rows = 1,
                                           .inner = 1};
#else
typedef int panels_avx512_has_no_code_here;
#endif
