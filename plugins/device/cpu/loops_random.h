/* loops_random.h: the keep factors of a dropout, 256 elements at a time (weft_dropout in weft/device.h; Philox-4x32 as
 * in weft/random.h), included over simd.h. A counter's four words are for elements 64 apart, so words stay in the lanes
 * that computed them. */
#include <weft/random.h>

#if defined(LOOPS_AVX512)
typedef __m512i words;
INLINE words words_set(uint32_t x) {
    return _mm512_set1_epi32((int)x);
}
INLINE words words_up(void) {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
INLINE words words_add(words a, words b) {
    return _mm512_add_epi32(a, b);
}
INLINE words words_xor(words a, words b, words c) {
    return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}
INLINE void words_multiply(words a, words m, words *high, words *low) {
    const words even = _mm512_mul_epu32(a, m), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), m);
    *high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    *low = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
}
/* x >= least ? factor : 0 */
INLINE vec words_keep(words x, uint32_t least, float factor) {
    return _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(x, words_set(least)), vec_set(factor));
}
#elif defined(LOOPS_AVX2)
typedef __m256i words;
INLINE words words_set(uint32_t x) {
    return _mm256_set1_epi32((int)x);
}
INLINE words words_up(void) {
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}
INLINE words words_add(words a, words b) {
    return _mm256_add_epi32(a, b);
}
INLINE words words_xor(words a, words b, words c) {
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}
INLINE void words_multiply(words a, words m, words *high, words *low) {
    const words even = _mm256_mul_epu32(a, m), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}
INLINE vec words_keep(words x, uint32_t least, float factor) {
    const words above = _mm256_cmpeq_epi32(_mm256_max_epu32(x, words_set(least)), x);
    return _mm256_and_ps(_mm256_castsi256_ps(above), vec_set(factor));
}
#else
typedef uint32_t words __attribute__((vector_size(16)));
INLINE words words_set(uint32_t x) {
    return (words){x, x, x, x};
}
INLINE words words_up(void) {
    return (words){0, 1, 2, 3};
}
INLINE words words_add(words a, words b) {
    return a + b;
}
INLINE words words_xor(words a, words b, words c) {
    return a ^ b ^ c;
}
INLINE void words_multiply(words a, words m, words *high, words *low) {
    int i;
    for (i = 0; i < VEC_LANES; i++) {
        const uint64_t product = (uint64_t)a[i] * m[i];
        (*high)[i] = (uint32_t)(product >> 32);
        (*low)[i] = (uint32_t)product;
    }
}
INLINE vec words_keep(words x, uint32_t least, float factor) {
    const words above = (words)(x >= words_set(least));
    return (vec)(above & (words)vec_set(factor));
}
#endif

#define RANDOM_COUNTERS 64 /* per block of 256 elements */
#define RANDOM_SETS     2  /* interleaved vectors of counters; the multiplications of one vector depend on each other */

/* keep (256): the factors of block `block` of a row. */
static void random_keep(float *keep, const cpu_drops *p, int64_t block) {
    const uint64_t low = (uint64_t)p->site << 40 | (uint64_t)block * RANDOM_COUNTERS;
    const uint32_t key = (uint32_t)(p->seed >> 32) ^ (WEFT_RANDOM_DROPOUT * 0x9E3779B1u);
    const words left = words_set(0xD2511F53u), right = words_set(0xCD9E8D57u);
    int i, j, round;
    for (i = 0; i < RANDOM_COUNTERS; i += RANDOM_SETS * VEC_LANES) {
        words c[RANDOM_SETS][4], k0 = words_set((uint32_t)p->seed), k1 = words_set(key);
        for (j = 0; j < RANDOM_SETS; j++) {
            c[j][0] = words_add(words_set((uint32_t)low + (uint32_t)(i + j * VEC_LANES)), words_up());
            c[j][1] = words_set((uint32_t)(low >> 32));
            c[j][2] = words_set((uint32_t)p->row);
            c[j][3] = words_set((uint32_t)(p->row >> 32));
        }
        for (round = 0; round < 10; round++) {
            for (j = 0; j < RANDOM_SETS; j++) {
                words high0, low0, high1, low1;
                words_multiply(c[j][0], left, &high0, &low0);
                words_multiply(c[j][2], right, &high1, &low1);
                c[j][0] = words_xor(high1, c[j][1], k0);
                c[j][2] = words_xor(high0, c[j][3], k1);
                c[j][1] = low1;
                c[j][3] = low0;
            }
            k0 = words_add(k0, words_set(0x9E3779B9u));
            k1 = words_add(k1, words_set(0xBB67AE85u));
        }
        for (j = 0; j < RANDOM_SETS * 4; j++)
            vec_store(keep + j % 4 * RANDOM_COUNTERS + i + j / 4 * VEC_LANES,
                      words_keep(c[j / 4][j % 4], p->least, p->factor));
    }
}
