/* loops.h: the table of inner loops, with one version per instruction set.
 *
 * loops_base.c, loops_avx2.c and loops_avx512.c compile the same source (loops_body.h over simd.h) for their set.
 * create() picks the set that oneDNN also uses, so that info's isa identifies the results. A loop accesses only its
 * arguments, runs in one thread and allocates nothing. Arrays need only 4-byte alignment unless noted otherwise, and
 * results do not depend on alignment. */
#ifndef WEFT_DEVICE_CPU_LOOPS_H
#define WEFT_DEVICE_CPU_LOOPS_H

#include <stdint.h>

#include <weft/device.h>
#include <weft/levels.h>

#define CPU_ACTIVATIONS (WEFT_GELU_TANH + 1)

#define CPU_BLOCK 64 /* queries and keys per block of attention */
#define CPU_WIDTH 16 /* packed blocks are padded to a multiple of this many rows */

/* Small dense matmuls of blocks: c (m,n) = or += a (m,k) b (k,n). Element (i,p) of a is a[i * a_row + p * a_step], so a
 * may be transposed. n, ldb and ldc are multiples of CPU_WIDTH. Each element is one chain over p. */
typedef struct cpu_small {
    float *c;
    const float *a, *b;
    int64_t ldc, a_row, a_step, ldb;
    int64_t m, n, k;
    int accumulate;
} cpu_small;

/* One block of scores, transposed: s (keys, CPU_BLOCK), one column per query. first and last bound the visible keys of
 * a query, relative to the block's first key. */
typedef struct cpu_scores {
    float *s;
    int64_t keys;
    const int32_t *first, *last; /* (CPU_BLOCK) */
    int masked;                  /* 0: every query sees every key of the block */
} cpu_scores;

/* Parameters of a dropout (weft_dropout), and the factor of kept elements. */
typedef struct cpu_drops {
    uint64_t seed, row;
    uint32_t site, least; /* a word of at least this value keeps */
    float factor;
} cpu_drops;
#define CPU_DROPS 256 /* elements whose words are drawn together: chunks of a row start at multiples of it */

/* Loops over activations: fp32, bf16 or fp16 in memory (`void *`, aligned to the element size), fp32 in registers.
 * Results are rounded once. */
typedef struct cpu_cells {
    /* y = a + b */
    void (*add)(void *y, const void *a, const void *b, int64_t n);
    /* out = or += in, with conversion from and to the memory type; put's out may alias in */
    void (*take)(float *out, const void *in, int64_t n, int accumulate);
    void (*put)(void *out, const float *in, int64_t n, int accumulate);
    /* Sum of a * b. */
    float (*dot)(const void *a, const void *b, int64_t n);
    /* y = or += factor * x; with cap > 0 cap tanh(factor * x / cap) */
    void (*scale)(void *y, const void *x, int64_t n, float factor, float cap, int accumulate);
    /* y = (x - shift) f + shift with f = by, or by / over; over and shift may be NULL */
    void (*multiply)(void *y, const void *x, const float *by, const float *over, const float *shift, int64_t n);
    /* dx (+)= dy f, dby += dy (x - shift); dx, dby, over and shift may be NULL, and dx may alias dy */
    void (*multiply_backward)(void *dx, float *dby, const void *dy, const void *x, const float *by, const float *over,
                              const float *shift, int64_t n, int add_dx);
    /* y = or += the elements of x kept by p: elements from, ..., from + n - 1 of a row */
    void (*dropout)(void *y, const void *x, const cpu_drops *p, int64_t from, int64_t n, int accumulate);
    /* y = f(x) * up, or f(x) if up is NULL, by weft_activation_form */
    void (*activation[CPU_ACTIVATIONS])(void *y, const void *x, const void *up, int64_t n);
    /* dx (+)= dy up f'(x), dup (+)= dy f(x); dx and dup may be NULL, up too, and then dup is */
    void (*activation_backward[CPU_ACTIVATIONS])(void *dx, void *dup, const void *dy, const void *x, const void *up,
                                                 int64_t n, int add_dx, int add_dup);
    /* Rows of norms; [1]: the gain is the stored value plus one. */
    /* y = x * r * gain, returns r = 1 / sqrt(mean(x^2) + eps). */
    float (*rms_row[2])(void *y, const void *x, const float *gain, int64_t width, double eps);
    /* dx (+)= ..., dgain += dy x r; either may be NULL. r < 0: compute it. */
    void (*rms_row_backward[2])(void *dx, float *dgain, const void *dy, const void *x, const float *gain, float r,
                                int64_t width, double eps, int add_dx);
    /* y = (x - mean) * r * gain + bias, returns r = 1 / sqrt(mean((x - mean)^2) + eps). */
    float (*layer_row[2])(void *y, const void *x, const float *gain, const float *bias, int64_t width, double eps,
                          float *mean);
    /* dx (+)= ..., dgain += dy (x - mean) r, dbias += dy; any may be NULL. r < 0: compute r and mean. */
    void (*layer_row_backward[2])(void *dx, float *dgain, float *dbias, const void *dy, const void *x,
                                  const float *gain, float r, float mean, int64_t width, double eps, int add_dx);
    /* One head: rotates pairs (x[i], x[i + half]) by cos and sin, (half) each. */
    void (*rope_head)(void *y, const void *x, const float *cosine, const float *sine, int64_t half, int inverse,
                      int accumulate);
    /* out (rows, width rounded up to CPU_WIDTH) = factor * in (rows, width) with row distance ld; the padding is
     * zero. */
    void (*pack)(float *out, const void *in, int64_t ld, int64_t rows, int64_t width, float factor);
} cpu_cells;

typedef struct cpu_loops {
    cpu_cells f32, bf16, f16;
    /* max(x) and the sum of exp(x - max); with keep, x becomes exp(x - max). */
    void (*exp_row)(float *x, int64_t n, int keep, float *max, double *sum);
    /* x *= factor */
    void (*scale)(float *x, int64_t n, float factor);
    /* x *= by, element-wise */
    void (*multiply)(float *x, const float *by, int64_t n);
    /* t = tanh(x / cap): x = cap t, and slope = 1 - t^2, which may be NULL */
    void (*cap)(float *x, float *slope, int64_t n, float cap);
    /* Sums of squares of `blocks` blocks of 64 elements, each in order. */
    void (*square_blocks)(double *sums, const float *x, int64_t blocks);
    void (*small)(const cpu_small *p);
    /* out (width, CPU_BLOCK) = in^T, in (rows, width) packed; columns from rows on are zero. */
    void (*transpose)(float *out, const float *in, int64_t rows, int64_t width);
    /* Converts scores to unnormalized probabilities under the running maximum. Updates max and sum (CPU_BLOCK); decay
     * (CPU_BLOCK) is the factor for the earlier sums. */
    void (*softmax)(const cpu_scores *p, float *max, float *sum, float *decay);
    /* Converts scores to probabilities exp(s - lse). */
    void (*probabilities)(const cpu_scores *p, const float *lse);
    /* d (keys, CPU_BLOCK) = p * (d - delta) */
    void (*score_gradient)(float *d, const float *p, const float *delta, int64_t keys);
    /* Decodes 64 codes (weft/levels.h, weft/blocks.h) times scale. */
    void (*unpack_i8)(float *out, const int8_t *codes, float scale);
    void (*unpack_f8)(float *out, const uint8_t *codes, float scale);
    void (*unpack_nf4)(float *out, const uint8_t *codes, float scale); /* two codes per byte */
    /* Runs enough independent chains of x = x * factor + term in registers to saturate the units, `rounds` long.
     * Returns the number of operations; *left depends on all of them. */
    double (*multiply_add)(float *left, int64_t rounds, float factor, float term);
} cpu_loops;

extern const cpu_loops cpu_loops_base;
#if defined(__x86_64__)
extern const cpu_loops cpu_loops_avx2;
extern const cpu_loops cpu_loops_avx512;
#endif

#endif
