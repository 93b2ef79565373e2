/* panels.h: the inner loops of matmuls on packed panels, in one thread; product_panels.c and product_team.c divide the
 * work.
 *
 * The inner dimension is counted in 32-bit words: one fp32, or two adjacent bf16, which the bf16 instructions multiply
 * and add as a pair (AVX512-BF16: each lane of a sum adds a[2p] b[2p] + a[2p+1] b[2p+1], in fp32). A panel stores lanes
 * (rows of a, columns of b) in slabs, each (words, lanes), padded with zeros. A slab of b has PANEL_LANES lanes; one of
 * a has as many as the blocks of sums need. Slabs are panel_room(words) words per lane apart. For AMX tiles a slab of a
 * stores the words of 16 lanes transposed, 16 at a time: (words / 16, lanes, 16). */
#ifndef WEFT_DEVICE_CPU_PANELS_H
#define WEFT_DEVICE_CPU_PANELS_H

#include <stdint.h>

#include "loops.h"

#define PANEL_LANES   16
#define PANEL_COLUMNS (3 * PANEL_LANES) /* granularity of columns in the division of work */
#define PANEL_LINE    64                /* bytes of a cache line */

/* lanes x k values in memory. along: a lane's values are contiguous and lanes are ld apart; otherwise the reverse. */
typedef struct panel_source {
    const void *at;
    int64_t ld, lanes, k;
    int along;
} panel_source;

/* Memory to prefetch: `lines` cache lines in each of `rows` rows, which are ld bytes apart. */
typedef struct panel_ahead {
    const char *at;
    int64_t ld, rows, lines; /* rows 0: no prefetch */
} panel_ahead;

/* c (rows, columns) = or += sum + a b. a is a panel with its own slabs (cpu_panels.rows_of_a), or the matrix itself.
 * Word w of row i is at offset i / rows_of_a * a_slab + i % rows_of_a * a_row + w * a_step words. For the matrix a_step
 * is 1 and a_slab is that many rows; for a panel a_row is 1 and a_step is rows_of_a. */
typedef struct panel_block {
    const void *a;
    const uint32_t *b; /* a panel */
    int64_t a_slab, a_row, a_step;
    int64_t room, words; /* of b: slab distance; length of the inner dimension */
    int64_t rows, columns;
    const float *sum; /* (rows, columns) with row distance sum_ld, or NULL */
    void *c;          /* (rows, columns) with row distance ldc */
    int64_t sum_ld, ldc;
    int accumulate; /* c += */
    int32_t narrow; /* WEFT_BF16 or WEFT_F16, c's type, rounded once; 0: fp32 */
    int pass;       /* c is written with non-temporal stores: fp32, rows of complete cache lines, without adding */
    panel_ahead ahead;
} panel_block;

typedef struct cpu_panels {
    void (*pack_a)(uint32_t *panel, const panel_source *from);
    void (*pack_b)(uint32_t *panel, const panel_source *from);
    void (*multiply)(const panel_block *p);
    /* Each thread calls them around its multiplications; other work may happen in between. May be NULL. */
    void (*enter)(void);
    void (*leave)(void);
    /* Small matmuls of bf16 pairs: a, b and the inner dimension are in words. NULL if a word is one value. With
     * packs_a, a is row-major (a_step 1), inner dimensions are multiples of CPU_WIDTH, and a and c have that many rows
     * allocated. */
    void (*small)(const cpu_small *p);
    /* Multiplies pairs in registers, `rounds` times as many as saturate the units. Returns the number of operations;
     * *left depends on all of them. NULL if a word is one value. */
    double (*peak)(float *left, int64_t rounds);
    int64_t values;      /* per word: 1, or 2 for bf16 pairs */
    int packs_a;         /* a is never read in place */
    int64_t rows_of_a;   /* lanes of a slab of a; slabs of b have PANEL_LANES */
    int64_t strip;       /* maximum rows of a per pass over b's columns: complete blocks of sums, and complete slabs */
    int64_t rows, inner; /* m and k of the smallest matmul for which panels are faster than the library */
} cpu_panels;

/* Words per lane of a slab. A transposing pack writes PANEL_LANES words at a time. One extra word avoids cache
 * conflicts: packing writes to several slabs at once, and lines complete pages apart would evict one another from
 * L1. */
static inline int64_t panel_room(int64_t words) {
    return (words + PANEL_LANES - 1) / PANEL_LANES * PANEL_LANES + 1;
}
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
