/* pairs.h: bf16 products on instructions that multiply pairs: each 32-bit lane of a sum takes in a[2p] b[2p] + a[2p+1]
 * b[2p+1], in fp32 (AVX512-BF16). product_pairs.c cuts; the loops here work on packed panels, in one thread.
 *
 * A panel holds lanes (rows of a, columns of b) in slabs of PAIRS_LANES, each (pairs, PAIRS_LANES) with the two values
 * of a pair side by side, padded with zeros. Slabs are pairs_room(k) pairs apart.
 */
#ifndef WEFT_DEVICE_CPU_PAIRS_H
#define WEFT_DEVICE_CPU_PAIRS_H

#include <stdint.h>

#define PAIRS_LANES   16
#define PAIRS_ROWS    8                 /* of the block of sums in registers */
#define PAIRS_COLUMNS (3 * PAIRS_LANES) /* of it: 24 sums, 3 of b, 1 of a */

/* lanes x k values in memory: a lane's values lie side by side and lanes are ld apart (along), or the other way round.
 */
typedef struct pairs_source {
    const uint16_t *at;
    int64_t ld, lanes, k;
    int along;
} pairs_source;

/* c (rows, columns) = or += sum + a b. */
typedef struct pairs_block {
    const uint32_t *a, *b; /* panels */
    int64_t room, pairs;   /* distance of slabs; pairs of the inner dimension */
    int64_t rows, columns;
    const float *sum; /* (rows, columns) with distance sum_ld, or NULL */
    void *c;          /* (rows, columns) with distance ldc */
    int64_t sum_ld, ldc;
    int accumulate; /* c += */
    int narrow;     /* c is bf16, rounded once; else fp32 */
} pairs_block;

typedef struct cpu_pairs {
    void (*pack)(uint32_t *panel, const pairs_source *from);
    void (*multiply)(const pairs_block *p);
} cpu_pairs;

/* A transposing pack writes PAIRS_LANES pairs at a time. */
static inline int64_t pairs_room(int64_t k) {
    return (k + 2 * PAIRS_LANES - 1) / (2 * PAIRS_LANES) * PAIRS_LANES;
}
/* Bytes of a panel. */
static inline int64_t pairs_bytes(int64_t lanes, int64_t k) {
    return (lanes + PAIRS_LANES - 1) / PAIRS_LANES * pairs_room(k) * PAIRS_LANES * (int64_t)sizeof(uint32_t);
}

#if defined(__x86_64__)
extern const cpu_pairs cpu_pairs_avx512;
#endif

#endif
