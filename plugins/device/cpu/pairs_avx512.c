/* pairs_avx512.c: products of packed bf16 pairs on AVX512-BF16 (pairs.h). Nothing of this file runs before the
 * processor was asked.
 *
 * Measured on one core of a Zen 5: 24 sums in registers run at 455 GFLOP/s of 460, and packing takes 5-9 % of a tile of
 * 264 x 384 on top. The instruction takes values below 2^-126 for zero.
 */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")
#define LOOPS_AVX512
#include "pairs.h"
#include "simd.h"

/* ---- packing ---- */

/* The first n of 32 values, zeros behind them; n > 0 may be more. */
INLINE __m512i load_values(const uint16_t *p, int64_t n) {
    if (n >= 32) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1u), p);
}

/* Sixteen lanes of sixteen pairs each, turned: the four steps exchange ever larger squares. */
INLINE void turn(uint32_t *out, const __m512i *lane) {
    __m512i r[16], t[16];
    int i;
#pragma GCC unroll 8
    for (i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(lane[2 * i], lane[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(lane[2 * i], lane[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
    }
#pragma GCC unroll 4
    for (i = 0; i < 4; i++) {
        _mm512_storeu_si512(out + i * 16, _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88));
        _mm512_storeu_si512(out + (i + 4) * 16, _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88));
        _mm512_storeu_si512(out + (i + 8) * 16, _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD));
        _mm512_storeu_si512(out + (i + 12) * 16, _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xDD));
    }
}

/* One slab of lanes whose values lie side by side: pairs are there already. */
static void pack_along(uint32_t *slab, const uint16_t *from, int64_t ld, int64_t lanes, int64_t k) {
    __m512i lane[16];
    int64_t p, i;
    for (p = 0; p < k; p += 32) {
        if (lanes >= 16 && k - p >= 32) {
#pragma GCC unroll 16
            for (i = 0; i < 16; i++) lane[i] = _mm512_loadu_si512(from + i * ld + p);
        } else {
            for (i = 0; i < 16; i++)
                lane[i] = i < lanes ? load_values(from + i * ld + p, k - p) : _mm512_setzero_si512();
        }
        turn(slab + p / 2 * 16, lane);
    }
}

/* Two slabs, or the last one, of lanes that lie side by side: two rows are shuffled into pairs. */
static void pack_across(uint32_t *slab, int64_t room, const uint16_t *from, int64_t ld, int64_t lanes, int64_t k) {
    const __m512i low =
        _mm512_add_epi16(_mm512_set1_epi32(0x00200000),
                         _mm512_setr_epi32(0x00000, 0x10001, 0x20002, 0x30003, 0x40004, 0x50005, 0x60006, 0x70007,
                                           0x80008, 0x90009, 0xA000A, 0xB000B, 0xC000C, 0xD000D, 0xE000E, 0xF000F));
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    int64_t p;
    for (p = 0; p < k; p += 2) {
        const __m512i even = load_values(from + p * ld, lanes);
        const __m512i odd = p + 1 < k ? load_values(from + (p + 1) * ld, lanes) : _mm512_setzero_si512();
        uint32_t *out = slab + p / 2 * 16;
        _mm512_storeu_si512(out, _mm512_permutex2var_epi16(even, low, odd));
        if (lanes > 16) _mm512_storeu_si512(out + room * 16, _mm512_permutex2var_epi16(even, high, odd));
    }
}

static void pack(uint32_t *panel, const pairs_source *from) {
    const int64_t room = pairs_room(from->k), step = from->along ? 16 : 32;
    int64_t i;
    for (i = 0; i < from->lanes; i += step) {
        if (from->along) {
            pack_along(panel + i * room, from->at + i * from->ld, from->ld, from->lanes - i, from->k);
        } else {
            pack_across(panel + i * room, room, from->at + i, from->ld, from->lanes - i, from->k);
        }
    }
}

/* ---- multiplying ---- */

/* Stores one vector of finished sums; n: of its columns that are there. */
INLINE void finish(const pairs_block *p, vec v, int64_t row, int64_t column, int64_t n) {
    const int64_t at = row * p->ldc + column;
    uint16_t *narrow = (uint16_t *)p->c + at;
    float *wide = (float *)p->c + at;
    if (p->sum != NULL) v += vec_get(p->sum + row * p->sum_ld + column, 0, n);
    if (p->narrow) {
        if (p->accumulate) v += bf16_get(narrow, 0, n);
        bf16_put(narrow, v, 0, n);
    } else {
        if (p->accumulate) v += vec_get(wide, 0, n);
        vec_put(wide, v, 0, n);
    }
}

/* One block of sums in registers, from row i and column j on; `vectors` is a constant where this is called. */
INLINE void block(const pairs_block *p, int64_t i, int64_t j, const int vectors) {
    const uint32_t *a = p->a + i / 16 * 16 * p->room + i % 16, *b = p->b + j * p->room;
    vec sum[PAIRS_ROWS][3];
    int64_t k;
    int r, q;
#pragma GCC unroll 8
    for (r = 0; r < PAIRS_ROWS; r++) {
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) sum[r][q] = vec_set(0.0f);
    }
    for (k = 0; k < p->pairs; k++) {
        __m512bh right[3];
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) right[q] = (__m512bh)_mm512_loadu_si512(b + (q * p->room + k) * 16);
#pragma GCC unroll 8
        for (r = 0; r < PAIRS_ROWS; r++) {
            const __m512bh left = (__m512bh)_mm512_set1_epi32((int)a[k * 16 + r]);
#pragma GCC unroll 3
            for (q = 0; q < vectors; q++) sum[r][q] = _mm512_dpbf16_ps(sum[r][q], left, right[q]);
        }
    }
    for (r = 0; r < PAIRS_ROWS && i + r < p->rows; r++) {
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) finish(p, sum[r][q], i + r, j + 16 * q, p->columns - j - 16 * q);
    }
}

static void multiply(const pairs_block *p) {
    int64_t i, j;
    for (j = 0; j < p->columns; j += PAIRS_COLUMNS) {
        const int64_t vectors = (p->columns - j + 15) / 16;
        for (i = 0; i < p->rows; i += PAIRS_ROWS) {
            if (vectors >= 3) {
                block(p, i, j, 3);
            } else if (vectors == 2) {
                block(p, i, j, 2);
            } else {
                block(p, i, j, 1);
            }
        }
    }
}

const cpu_pairs cpu_pairs_avx512 = {pack, multiply};
#else
typedef int pairs_avx512_has_no_code_here;
#endif
