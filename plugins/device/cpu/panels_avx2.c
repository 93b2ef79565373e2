/* panels_avx2.c: matmuls of packed panels (panels.h) on AVX2 with FMA, in fp32; 16-bit operands are widened when
 * packed. Runs only after a check of the processor. */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c,prfchw")
#define LOOPS_AVX2
#include "panels.h"
#include "simd.h"

#define BLOCK_ROWS    6
#define BLOCK_VECTORS 2 /* 6 x 2 sums, 2 of b, 1 of a */
#define BLOCK_TAIL    4
#define SLAB_ROWS     BLOCK_ROWS /* of sixteen lanes a block would use six */
#define LOOP_WORDS    4   /* a Cascade Lake issues four instructions per cycle; with two words 24 of 53 multiply */
#define CUT_WORDS     256 /* 16 KB of b in 32 KB of L1 */
#define STRIP         (16 * BLOCK_ROWS)

INLINE vec spread_word(const char *at) {
    float word;
    memcpy(&word, at, sizeof word);
    return vec_set(word);
}
INLINE void multiply_word(vec *sum, vec left, vec right, const int values) {
    (void)values;
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(left), "x"(right));
}
INLINE void vec_pass(float *p, vec v) {
    _mm256_stream_ps(p, v);
}

#include "panels_body.h"

/* Transposes eight lanes of eight words each: stores `lanes` of each word, at a distance of `apart`. */
INLINE void turn(uint32_t *out, const vec *lane, const int64_t lanes, const int64_t apart) {
    vec r[8], t[8];
    int i;
#pragma GCC unroll 4
    for (i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(lane[2 * i], lane[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(lane[2 * i], lane[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
#pragma GCC unroll 8
    for (i = 0; i < 8; i++) {
        const vec word = i < 4 ? _mm256_permute2f128_ps(r[i], r[i + 4], 0x20)
                               : _mm256_permute2f128_ps(r[i - 4], r[i], 0x31);
        float *at = (float *)(void *)out + i * apart;
        if (i < 7) vec_store(at, word); /* if words are closer than eight lanes, the next store overwrites the excess */
        else vec_put(at, word, 0, lanes);
    }
}

/* Packs up to eight lanes of a slab whose values are contiguous. */
INLINE void pack_some(uint32_t *slab, const panel_source *from, int64_t first, const int some, const int64_t apart,
                      const int32_t dtype) {
    const int64_t bytes = panel_value_bytes(dtype), row = from->ld * bytes;
    const int64_t lanes = from->lanes - first < some ? from->lanes - first : some;
    const char *at = (const char *)from->at + first * row;
    vec lane[8];
    int64_t w, i;
    for (w = 0; w < from->k; w += 8) {
#pragma GCC unroll 8
        for (i = 0; i < 8; i++) {
            if (w % (64 / bytes) == 0) _mm_prefetch(at + (i + 8) * row + w * bytes, _MM_HINT_T0);
            lane[i] = i < lanes ? panel_values(at + i * row, w, from->k, dtype) : vec_set(0.0f);
        }
        turn(slab + w * apart, lane, some, apart);
    }
}

INLINE void pack_b(uint32_t *panel, const panel_source *from, const int32_t dtype) {
    int64_t i;
    if (!from->along) {
        pack_across(panel, from, dtype);
        return;
    }
    for (i = 0; i < from->lanes; i += PANEL_LANES) {
        uint32_t *slab = panel + i * panel_room(from->k);
        pack_some(slab, from, i, 8, PANEL_LANES, dtype);
        pack_some(slab + 8, from, i + 8, 8, PANEL_LANES, dtype);
    }
}

/* Packs lanes of a stored next to each other. Six of a vector's eight are kept: the next word's store overwrites the
 * other two. */
INLINE void pack_a_across(uint32_t *panel, const panel_source *from, const int32_t dtype) {
    const int64_t room = panel_room(from->k), bytes = panel_value_bytes(dtype), row = from->ld * bytes;
    const char *at = (const char *)from->at;
    int64_t k, i;
    for (k = 0; k < from->k; k++, at += row) {
        for (i = 0; i < from->lanes; i += SLAB_ROWS) {
            float *out = (float *)(void *)(panel + i * room + k * SLAB_ROWS);
            const vec word = panel_values(at, i, from->lanes, dtype);
            if ((uintptr_t)(at + i * bytes) % PANEL_LINE < (uintptr_t)(SLAB_ROWS * bytes))
                _mm_prefetch(at + AHEAD_ROWS * row + i * bytes, _MM_HINT_T0);
            if (k + 1 < from->k) vec_store(out, word);
            else vec_put(out, word, 0, SLAB_ROWS);
        }
    }
}
INLINE void pack_a(uint32_t *panel, const panel_source *from, const int32_t dtype) {
    int64_t i;
    if (!from->along) {
        pack_a_across(panel, from, dtype);
        return;
    }
    for (i = 0; i < from->lanes; i += SLAB_ROWS)
        pack_some(panel + i * panel_room(from->k), from, i, SLAB_ROWS, SLAB_ROWS, dtype);
}

static void pack_a_f32(uint32_t *panel, const panel_source *from) {
    pack_a(panel, from, WEFT_F32);
}
static void pack_a_widened(uint32_t *panel, const panel_source *from) {
    pack_a(panel, from, WEFT_BF16);
}
static void pack_b_f32(uint32_t *panel, const panel_source *from) {
    pack_b(panel, from, WEFT_F32);
}
static void pack_b_widened(uint32_t *panel, const panel_source *from) {
    pack_b(panel, from, WEFT_BF16);
}
static void pack_a_half(uint32_t *panel, const panel_source *from) {
    pack_a(panel, from, WEFT_F16);
}
static void pack_b_half(uint32_t *panel, const panel_source *from) {
    pack_b(panel, from, WEFT_F16);
}

const cpu_panels cpu_panels_f32_avx2 = {.pack_a = pack_a_f32,
                                        .pack_b = pack_b_f32,
                                        .multiply = multiply_f32,
                                        .values = 1,
                                        .rows_of_a = SLAB_ROWS,
                                        .strip = STRIP,
                                        .rows = 256,
                                        .inner = 512};
const cpu_panels cpu_panels_wide_avx2 = {.pack_a = pack_a_widened,
                                         .pack_b = pack_b_widened,
                                         .multiply = multiply_f32,
                                         .values = 1,
                                         .rows_of_a = SLAB_ROWS,
                                         .strip = STRIP,
                                         .rows = 16,
                                         .inner = 1};
const cpu_panels cpu_panels_half_avx2 = {.pack_a = pack_a_half,
                                         .pack_b = pack_b_half,
                                         .multiply = multiply_f32,
                                         .values = 1,
                                         .rows_of_a = SLAB_ROWS,
                                         .strip = STRIP,
                                         .rows = 16,
                                         .inner = 1};
#else
typedef int panels_avx2_has_no_code_here;
#endif
