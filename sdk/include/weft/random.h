/* weft/random.h: counter-based random numbers without state.
 *
 * A number is a function of a key (seed and purpose) and a counter (sequence in the stream, call site, element). It is
 * identical on every rank, in any order, and after any resume. The generator is Philox-4x32 with ten rounds: Salmon et
 * al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 */
#ifndef WEFT_RANDOM_H
#define WEFT_RANDOM_H

#include <weft/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Purpose of a stream of numbers; part of the key, so that two purposes never share numbers. */
typedef enum weft_random_purpose {
    WEFT_RANDOM_INIT = 1,    /* counter: parameter, element */
    WEFT_RANDOM_EPOCH = 2,   /* counter: epoch, round */
    WEFT_RANDOM_SPLIT = 3,   /* counter: document */
    WEFT_RANDOM_DROPOUT = 4, /* counter: sequence in the stream; call site, element (weft_dropout) */
    WEFT_RANDOM_SAMPLE = 5   /* counter: position in a generated text */
} weft_random_purpose;

typedef struct weft_random4 {
    uint32_t v[4];
} weft_random4;

/* Returns four independent 32-bit numbers. [any-thread] [hot] */
static inline weft_random4 weft_random(uint64_t seed, uint32_t purpose, uint64_t high, uint64_t low) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32) ^ (purpose * 0x9E3779B1u);
    uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32), c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);
    weft_random4 out;
    int round;
    for (round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out.v[0] = c0;
    out.v[1] = c1;
    out.v[2] = c2;
    out.v[3] = c3;
    return out;
}

/* Returns a uniform number in [0, 1) with 24 bits, exact in fp32. [any-thread] [hot] */
static inline float weft_random_uniform(uint32_t bits) {
    return (float)(bits >> 8) * (1.0f / 16777216.0f);
}

/* Returns the image of i under a permutation of [0, n) defined by (seed, purpose, epoch), in constant time without a
 * table. A balanced Feistel network over the next even number of bits is applied until the image is below n (Black and
 * Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). n < 2^62, i < n. [any-thread] [hot] */
static inline uint64_t weft_random_permute(uint64_t n, uint64_t i, uint64_t seed, uint32_t purpose, uint64_t epoch) {
    uint32_t half = 1;
    uint64_t mask = 0, x = i;
    if (n < 2) return 0;
    while (half < 31 && ((uint64_t)1 << (2 * half)) < n) half++;
    mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;
        uint32_t round;
        for (round = 0; round < 8; round++) {
            const weft_random4 f = weft_random(seed, purpose, epoch, ((uint64_t)round << 32) | right);
            const uint64_t next = left ^ (f.v[0] & mask);
            left = right;
            right = next;
        }
        x = (left << half) | right;
    } while (x >= n);
    return x;
}

#ifdef __cplusplus
}
#endif
#endif
