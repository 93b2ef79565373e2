/* panels.h: the inner loops of matrix products on packed panels, in one thread; product_panels.c and product_team.c
 * cut.
 *
 * The inner dimension is counted in words of 32 bits: a word is one fp32, or two bf16 that follow one another, which
 * the instructions for bf16 multiply and add as a pair (AVX512-BF16: each lane of a sum takes in a[2p] b[2p] +
 * a[2p+1] b[2p+1], in fp32). A panel holds lanes (rows of a, columns of b) in slabs, each (words, lanes), padded with
 * zeros: of b PANEL_LANES lanes, of a as many as suit the blocks of sums. Slabs are panel_room(words) words per lane
 * apart. On tiles of AMX the words of 16 lanes are turned in a slab of a, 16 at a time: (words / 16, lanes, 16).
 */
#ifndef WEFT_DEVICE_CPU_PANELS_H
#define WEFT_DEVICE_CPU_PANELS_H

#include <stdint.h>

#include "loops.h"

#define PANEL_LANES   16
#define PANEL_COLUMNS (3 * PANEL_LANES) /* in which columns are counted where they are shared out */
#define PANEL_LINE    64                /* bytes of a line of the caches */

/* lanes x k values in memory: a lane's values lie side by side and lanes are ld apart (along), or the other way round.
 */
typedef struct panel_source {
    const void *at;
    int64_t ld, lanes, k;
    int along;
} panel_source;

/* Memory that is needed soon: `lines` lines of the cache in each of `rows` rows, which are ld bytes apart. */
typedef struct panel_ahead {
    const char *at;
    int64_t ld, rows, lines; /* rows 0: there is none */
} panel_ahead;

/* c (rows, columns) = or += sum + a b. a is a panel of slabs of its own (cpu_panels.rows_of_a), or the matrix itself:
 * word w of row i lies at i / rows_of_a * a_slab + i % rows_of_a * a_row + w * a_step words behind it. Of the matrix
 * a_step is 1 and a_slab so many rows; of a panel a_row is 1 and a_step rows_of_a. */
typedef struct panel_block {
    const void *a;
    const uint32_t *b; /* a panel */
    int64_t a_slab, a_row, a_step;
    int64_t room, words; /* of b: distance of slabs; length of the inner dimension */
    int64_t rows, columns;
    const float *sum; /* (rows, columns) with distance sum_ld, or NULL */
    void *c;          /* (rows, columns) with distance ldc */
    int64_t sum_ld, ldc;
    int accumulate; /* c += */
    int32_t narrow; /* WEFT_BF16 or WEFT_F16, which c has, rounded once; 0: fp32 */
    int pass;       /* c is written past the caches: fp32, its rows in whole lines of the cache, nothing is added */
    panel_ahead ahead;
} panel_block;

typedef struct cpu_panels {
    void (*pack_a)(uint32_t *panel, const panel_source *from);
    void (*pack_b)(uint32_t *panel, const panel_source *from);
    void (*multiply)(const panel_block *p);
    /* A thread calls them before it multiplies and afterwards, with whatever lies in between; may be NULL. */
    void (*enter)(void);
    void (*leave)(void);
    /* Small products of pairs of bf16: a and b are words, and so counts the inner dimension. NULL where a word is one
     * value. Where packs_a is set, a's rows lie along (a_step 1), inner dimensions are multiples of CPU_WIDTH, and a
     * and c have room for so many rows. */
    void (*small)(const cpu_small *p);
    /* Products of pairs on operands that never leave the registers, `rounds` times as many as keep the units busy.
     * Returns how many operations that were; *left depends on all of them. NULL where a word is one value. */
    double (*peak)(float *left, int64_t rounds);
    int64_t values;      /* of a word: 1, or 2 where pairs of bf16 are multiplied */
    int packs_a;         /* a is never read where it lies */
    int64_t rows_of_a;   /* lanes of a slab of a; those of b have PANEL_LANES */
    int64_t strip;       /* rows of a that meet b's columns at a time, at most: whole blocks of sums, and whole slabs */
    int64_t rows, inner; /* m and k of the smallest product on which panels are faster than the library */
} cpu_panels;

/* A transposing pack writes PANEL_LANES words at a time. One word more, because packing writes to several slabs at
 * once: whole pages apart their lines would drive one another out of the first cache. */
static inline int64_t panel_room(int64_t words) {
    return (words + PANEL_LANES - 1) / PANEL_LANES * PANEL_LANES + 1;
}
/* Bytes of a panel. */
static inline int64_t panel_bytes(int64_t lanes, int64_t words) {
    return (lanes + PANEL_LANES - 1) / PANEL_LANES * panel_room(words) * PANEL_LANES * (int64_t)sizeof(uint32_t);
}

#if defined(__x86_64__)
extern const cpu_panels cpu_panels_f32_avx2, cpu_panels_wide_avx2, cpu_panels_half_avx2;
extern const cpu_panels cpu_panels_f32_avx512, cpu_panels_wide_avx512, cpu_panels_half_avx512;
extern const cpu_panels cpu_panels_bf16_avx512;
#endif
#if defined(__x86_64__) || defined(WEFT_AMX_PLAIN)
extern const cpu_panels cpu_panels_bf16_amx;
#endif

#endif
