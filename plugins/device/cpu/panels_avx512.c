/* panels_avx512.c: products of packed panels (panels.h) on AVX-512, in fp32 and in pairs of bf16. Nothing of this file
 * runs before the processor was asked, for each of the two.
 *
 * Measured on one core of a Zen 5: 24 sums in registers run at 97 % of what the registers give, fp32 and bf16. The
 * instruction for bf16 takes values below 2^-126 for zero.
 */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,prfchw")
#define LOOPS_AVX512
#include "panels.h"
#include "simd.h"

/* ---- packing ---- */

/* The first n values, zeros behind them; n > 0 may be more than a register holds. */
INLINE __m512i load_16(const uint16_t *p, int64_t n) {
    if (n >= 32) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1u), p);
}
INLINE __m512i load_32(const uint32_t *p, int64_t n) {
    if (n >= 16) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1u), p);
}

/* Sixteen lanes of sixteen words each, turned: the four steps exchange ever larger squares. */
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

/* One slab of lanes whose values lie side by side: the words are there already. values: of a word. */
INLINE void pack_along(uint32_t *slab, const panel_source *from, int64_t first, const int values) {
    const char *at = (const char *)from->at + first * from->ld * (4 / values);
    const int64_t lanes = from->lanes - first, row = from->ld * (4 / values), words = (from->k + values - 1) / values;
    __m512i lane[16];
    int64_t w, i;
    for (w = 0; w < words; w += 16) {
        if (lanes >= 16 && from->k - w * values >= 16 * values) {
#pragma GCC unroll 16
            for (i = 0; i < 16; i++) {
                _mm_prefetch(at + (i + 16) * row + w * 4,
                             _MM_HINT_T0); /* the next slab's; past the end it is nothing */
                lane[i] = _mm512_loadu_si512(at + i * row + w * 4);
            }
        } else {
            for (i = 0; i < 16; i++) {
                const void *p = at + i * row + w * 4;
                lane[i] = i >= lanes    ? _mm512_setzero_si512()
                          : values == 2 ? load_16(p, from->k - w * 2)
                                        : load_32(p, from->k - w);
            }
        }
        turn(slab + w * 16, lane);
    }
}

/* Two slabs, or the last one, of bf16 lanes that lie side by side: two rows are shuffled into pairs. */
static void pack_across_bf16(uint32_t *slab, int64_t room, const uint16_t *from, int64_t ld, int64_t lanes, int64_t k) {
    const __m512i low =
        _mm512_add_epi16(_mm512_set1_epi32(0x00200000),
                         _mm512_setr_epi32(0x00000, 0x10001, 0x20002, 0x30003, 0x40004, 0x50005, 0x60006, 0x70007,
                                           0x80008, 0x90009, 0xA000A, 0xB000B, 0xC000C, 0xD000D, 0xE000E, 0xF000F));
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    int64_t p;
    for (p = 0; p < k; p += 2) {
        const __m512i even = load_16(from + p * ld, lanes);
        const __m512i odd = p + 1 < k ? load_16(from + (p + 1) * ld, lanes) : _mm512_setzero_si512();
        uint32_t *out = slab + p / 2 * 16;
        _mm512_storeu_si512(out, _mm512_permutex2var_epi16(even, low, odd));
        if (lanes > 16) _mm512_storeu_si512(out + room * 16, _mm512_permutex2var_epi16(even, high, odd));
    }
}

/* fp32 lanes that lie side by side: row by row, as memory has them. */
static void pack_across_f32(uint32_t *panel, const panel_source *from) {
    const int64_t room = panel_room(from->k);
    int64_t k, i;
    for (k = 0; k < from->k; k++) {
        const uint32_t *row = (const uint32_t *)from->at + k * from->ld;
        for (i = 0; i < from->lanes; i += 16)
            _mm512_storeu_si512(panel + i * room + k * 16, load_32(row + i, from->lanes - i));
    }
}

static void pack_f32(uint32_t *panel, const panel_source *from) {
    int64_t i;
    if (!from->along) {
        pack_across_f32(panel, from);
        return;
    }
    for (i = 0; i < from->lanes; i += 16) pack_along(panel + i * panel_room(from->k), from, i, 1);
}

static void pack_bf16(uint32_t *panel, const panel_source *from) {
    const int64_t room = panel_room((from->k + 1) / 2), step = from->along ? 16 : 32;
    int64_t i;
    for (i = 0; i < from->lanes; i += step) {
        if (from->along) {
            pack_along(panel + i * room, from, i, 2);
        } else {
            pack_across_bf16(panel + i * room, room, (const uint16_t *)from->at + i, from->ld, from->lanes - i,
                             from->k);
        }
    }
}

/* ---- multiplying ---- */

#define AHEAD_WORDS 16 /* of the inner dimension, for which one line is fetched ahead */

/* Stores one vector of finished sums; n: of its columns that are there. */
INLINE void finish(const panel_block *p, vec v, int64_t row, int64_t column, int64_t n) {
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

/* One word of a, which may lie anywhere, with sixteen of b. */
INLINE vec multiply_word(vec sum, const char *left, __m512i right, const int values) {
    int word = 0;
    __m512i a;
    memcpy(&word, left, sizeof word);
    a = _mm512_set1_epi32(word);
    if (values == 2) return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)right);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(right), sum);
}

/* How the finished sums of a block go into c, where it lies within c, which is fp32, and no sum waits elsewhere. */
typedef enum way { SET, ADD, PASS } way;

INLINE void finish_plain(const panel_block *p, vec sum[PANEL_ROWS][3], int64_t i, int64_t j, const int vectors,
                         const way how) {
    float *at = (float *)p->c + i * p->ldc + j;
    int r, q;
#pragma GCC unroll 8
    for (r = 0; r < PANEL_ROWS; r++, at += p->ldc) {
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) {
            if (how == ADD) sum[r][q] += vec_load(at + 16 * q);
            if (how == PASS) {
                _mm512_stream_ps(at + 16 * q, sum[r][q]);
            } else {
                vec_store(at + 16 * q, sum[r][q]);
            }
        }
    }
}

/* c is fetched to be written, so that its lines come as this core's own; a processor without prefetchw ignores it.
 *
 * One block of sums in registers, from row i and column j on; `vectors` and `values` are constants where this is
 * called. Rows past the end are the last one again. */
INLINE void block(const panel_block *p, int64_t i, int64_t j, const char *ahead, int64_t ahead_ld, const int vectors,
                  const int values) {
    const char *a[PANEL_ROWS];
    const uint32_t *b = p->b + j * p->room;
    const int64_t step = p->a_step * 4;
    const int whole = i + PANEL_ROWS <= p->rows && j + 16 * vectors <= p->columns;
    vec sum[PANEL_ROWS][3];
    int64_t k, at = 0;
    int r, q;
#pragma GCC unroll 8
    for (r = 0; r < PANEL_ROWS; r++) {
        const int64_t row = i + r < p->rows ? i + r : p->rows - 1;
        a[r] = (const char *)p->a + (row / PANEL_LANES * p->a_slab + row % PANEL_LANES * p->a_row) * 4;
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) {
            sum[r][q] = vec_set(0.0f);
            if (i + r < p->rows && !p->pass)
                __builtin_prefetch((const char *)p->c + ((i + r) * p->ldc + j + 16 * q) * (p->narrow ? 2 : 4), 1, 3);
        }
    }
    for (k = 0; k < p->words; k++, at += step) {
        __m512i right[3];
        if (k % AHEAD_WORDS == 0) {
            _mm_prefetch(ahead, _MM_HINT_T1);
            ahead += ahead_ld;
        }
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) right[q] = _mm512_loadu_si512(b + (q * p->room + k) * 16);
#pragma GCC unroll 8
        for (r = 0; r < PANEL_ROWS; r++) {
#pragma GCC unroll 3
            for (q = 0; q < vectors; q++) sum[r][q] = multiply_word(sum[r][q], a[r] + at, right[q], values);
        }
    }
    if (whole && !p->narrow && p->sum == NULL) {
        if (p->accumulate) {
            finish_plain(p, sum, i, j, vectors, ADD);
        } else if (p->pass) {
            finish_plain(p, sum, i, j, vectors, PASS);
        } else {
            finish_plain(p, sum, i, j, vectors, SET);
        }
        return;
    }
    for (r = 0; r < PANEL_ROWS && i + r < p->rows; r++) {
#pragma GCC unroll 3
        for (q = 0; q < vectors; q++) finish(p, sum[r][q], i + r, j + 16 * q, p->columns - j - 16 * q);
    }
}

/* b's columns stay in the cache while all rows meet them. Each block fetches a part of what comes next, line by line
 * down the rows; when all is fetched, a word that is in use anyway. */
INLINE void multiply(const panel_block *p, const int values) {
    const int64_t once = (p->words + AHEAD_WORDS - 1) / AHEAD_WORDS;
    int64_t i, j, row = 0, line = 0;
    for (j = 0; j < p->columns; j += PANEL_COLUMNS) {
        for (i = 0; i < p->rows; i += PANEL_ROWS) {
            const int more = row < p->ahead.rows && line < p->ahead.lines;
            const char *ahead = more ? p->ahead.at + row * p->ahead.ld + line * 64 : (const char *)p->a;
            const int64_t ahead_ld = more ? p->ahead.ld : 0;
            if (j + 2 * PANEL_LANES < p->columns) {
                block(p, i, j, ahead, ahead_ld, 3, values);
            } else if (j + PANEL_LANES < p->columns) {
                block(p, i, j, ahead, ahead_ld, 2, values);
            } else {
                block(p, i, j, ahead, ahead_ld, 1, values);
            }
            row += once;
            if (row >= p->ahead.rows) {
                row = 0;
                line++;
            }
        }
    }
    if (p->pass) _mm_sfence(); /* another thread may read c as soon as it is told to */
}
static void multiply_f32(const panel_block *p) {
    multiply(p, 1);
}
static void multiply_bf16(const panel_block *p) {
    multiply(p, 2);
}

INLINE vec pair_step(vec left, vec right, vec sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)left, (__m512bh)right);
}
#define SMALL_STEP pair_step
#include "loops_small.h"

const cpu_panels cpu_panels_f32_avx512 = {pack_f32, multiply_f32, NULL, 1};
const cpu_panels cpu_panels_bf16_avx512 = {pack_bf16, multiply_bf16, loop_small, 2};
#else
typedef int panels_avx512_has_no_code_here;
#endif
