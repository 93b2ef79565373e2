/* panels_words.h: vectors of sixteen 32-bit words for packing panels, on AVX-512 (LOOPS_AVX512) and in plain C. A word
 * is two 16-bit values, or one of 32 bits. */
#ifndef WEFT_DEVICE_CPU_PANELS_WORDS_H
#define WEFT_DEVICE_CPU_PANELS_WORDS_H

#if defined(LOOPS_AVX512)
typedef __m512i words;

/* Loads the first n 16-bit values, zeros after; n may exceed the vector. */
INLINE words words_load(const uint16_t *p, int64_t n) {
    if (n >= 32) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16(n > 0 ? (__mmask32)((1u << n) - 1u) : 0, p);
}
INLINE void words_store(uint32_t *p, words x) {
    _mm512_storeu_si512(p, x);
}
/* Joins adjacent values of 32 lanes to words of the first 16 lanes and of the others. */
INLINE void words_join(words *low, words *high, words first, words second) {
    const words even =
        _mm512_add_epi16(_mm512_set1_epi32(0x00200000),
                         _mm512_setr_epi32(0x00000, 0x10001, 0x20002, 0x30003, 0x40004, 0x50005, 0x60006, 0x70007,
                                           0x80008, 0x90009, 0xA000A, 0xB000B, 0xC000C, 0xD000D, 0xE000E, 0xF000F));
    *low = _mm512_permutex2var_epi16(first, even, second);
    *high = _mm512_permutex2var_epi16(first, _mm512_add_epi16(even, _mm512_set1_epi16(16)), second);
}

/* Transposes sixteen lanes of sixteen words each; the four steps exchange ever larger squares. */
INLINE void words_turn(uint32_t *out, const words *lane) {
    words r[16], t[16];
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
        words_store(out + i * 16, _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88));
        words_store(out + (i + 4) * 16, _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88));
        words_store(out + (i + 8) * 16, _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD));
        words_store(out + (i + 12) * 16, _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xDD));
    }
}

#else
typedef struct words {
    uint32_t at[16];
} words;

INLINE words words_load(const uint16_t *p, int64_t n) {
    words x = {{0}};
    if (n > 0) memcpy(&x, p, (size_t)(n < 32 ? n : 32) * sizeof *p);
    return x;
}
INLINE void words_store(uint32_t *p, words x) {
    memcpy(p, &x, sizeof x);
}
INLINE void words_join(words *low, words *high, words first, words second) {
    uint16_t x[32], y[32];
    int i;
    memcpy(x, &first, sizeof x);
    memcpy(y, &second, sizeof y);
    for (i = 0; i < 16; i++) {
        low->at[i] = (uint32_t)x[i] | (uint32_t)y[i] << 16;
        high->at[i] = (uint32_t)x[16 + i] | (uint32_t)y[16 + i] << 16;
    }
}
INLINE void words_turn(uint32_t *out, const words *lane) {
    int i, j;
    for (i = 0; i < 16; i++) {
        for (j = 0; j < 16; j++) out[i * 16 + j] = lane[j].at[i];
    }
}
#endif

#endif
