/* loops_body.h: source of the inner loops (specified in loops.h), compiled once per instruction set. The including file
 * defines the table's name as LOOPS_TABLE. */
#include "loops.h"
#include "simd.h"

#include "loops_curves.h"
#include "loops_random.h"
#include "loops_unpack.h"

/* Returns the gain of a norm: the stored value, or that plus one. */
INLINE vec gain_at(const float *gain, int64_t i, int64_t n, const int from_one) {
    vec g = vec_get(gain, i, n);
    if (from_one) g += vec_set(1.0f);
    return g;
}

#define CELL        float
#define CELL_GET    vec_get
#define CELL_PUT    vec_put
#define CELLS(name) name##_f32
#include "loops_cells.h"

#define CELL        uint16_t
#define CELL_GET    bf16_get
#define CELL_PUT    bf16_put
#define CELLS(name) name##_bf16
#include "loops_cells.h"

#define CELL        uint16_t
#define CELL_GET    f16_get
#define CELL_PUT    f16_put
#define CELLS(name) name##_f16
#include "loops_cells.h"

#define CELLS_TABLE(type)                                                                                              \
    {                                                                                                                  \
        .add = add_##type, .take = take_##type, .put = put_##type, .scale = scale_##type, .dot = dot_##type,           \
        .multiply = multiply_##type, .multiply_backward = multiply_backward_##type, .dropout = dropout_##type,         \
        .activation = {[WEFT_SILU] = silu_##type, [WEFT_GELU] = gelu_##type, [WEFT_GELU_TANH] = gelu_tanh_##type},     \
        .activation_backward = {[WEFT_SILU] = silu_backward_##type,                                                    \
                                [WEFT_GELU] = gelu_backward_##type,                                                    \
                                [WEFT_GELU_TANH] = gelu_tanh_backward_##type},                                         \
        .rms_row = {rms_plain_##type, rms_from_one_##type},                                                            \
        .rms_row_backward = {rms_backward_plain_##type, rms_backward_from_one_##type},                                 \
        .layer_row = {layer_plain_##type, layer_from_one_##type},                                                      \
        .layer_row_backward = {layer_backward_plain_##type, layer_backward_from_one_##type},                           \
        .rope_head = rope_head_##type, .pack = pack_##type,                                                            \
    }

static void loop_scale(float *x, int64_t n, float factor) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) vec_put(x, vec_get(x, i, n) * vec_set(factor), i, n);
}

static void loop_multiply(float *x, const float *by, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) vec_put(x, vec_get(x, i, n) * vec_get(by, i, n), i, n);
}

static void loop_cap(float *x, float *slope, int64_t n, float cap) {
    int64_t i;
    for (i = 0; i < n; i += VEC_LANES) {
        const vec t = hyperbolic_tangent(vec_get(x, i, n) / vec_set(cap));
        vec_put(x, vec_set(cap) * t, i, n);
        if (slope != NULL) vec_put(slope, vec_set(1.0f) - t * t, i, n);
    }
}

/* ---- the head's softmax ---- */

/* The sum uses fp32 over runs of 32 vectors and fp64 over runs, so that a vocabulary of any size loses no digits. */
static void loop_exp_row(float *x, int64_t n, int keep, float *max, double *sum) {
    const int64_t run = 32 * VEC_LANES;
    vec m = vec_set(-INFINITY);
    double total = 0;
    float largest = 0;
    int64_t i, j;
    for (i = 0; i + VEC_LANES <= n; i += VEC_LANES) m = vec_max(m, vec_load(x + i));
    if (i < n) m = vec_max(m, vec_load_part(x + i, n - i, -INFINITY));
    largest = vec_largest(m);
    for (j = 0; j < n; j += run) {
        const int64_t end = j + run < n ? j + run : n;
        vec part = vec_set(0.0f);
        for (i = j; i < end; i += VEC_LANES) {
            const int64_t left = end - i;
            const vec v = left >= VEC_LANES ? vec_load(x + i) : vec_load_part(x + i, left, -INFINITY);
            const vec e = vec_exp(v - vec_set(largest));
            part += e;
            if (keep) vec_put(x, e, i, end);
        }
        total += (double)vec_sum(part);
    }
    *max = largest;
    *sum = total;
}

/* ---- sums of squares ---- */

typedef float eight __attribute__((vector_size(32)));
typedef int32_t eight_bits __attribute__((vector_size(32)));
typedef double eight_doubles __attribute__((vector_size(64)));

#define SQUARES_AHEAD 2048 /* prefetch distance in elements */

#define EIGHT(a, b, ...) __builtin_shuffle(a, b, (eight_bits){__VA_ARGS__})

/* Transposes an 8 x 8 square: element i of the eight rows becomes vector i. The three steps exchange ever larger
 * squares. */
INLINE void turn_eight(eight *r, const float *x, int64_t ld) {
    eight t[8];
    int i;
#pragma GCC unroll 8
    for (i = 0; i < 8; i++) memcpy(&r[i], x + i * ld, sizeof r[i]);
#pragma GCC unroll 4
    for (i = 0; i < 8; i += 2) {
        t[i] = EIGHT(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = EIGHT(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (i = 0; i < 8; i += 4) {
        r[i] = EIGHT(t[i], t[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 1] = EIGHT(t[i], t[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        r[i + 2] = EIGHT(t[i + 1], t[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 3] = EIGHT(t[i + 1], t[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (i = 0; i < 4; i++) {
        t[i] = EIGHT(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        t[i + 4] = EIGHT(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
#pragma GCC unroll 8
    for (i = 0; i < 8; i++) r[i] = t[i];
}

/* Each block is one chain of 64 additions. Eight chains are interleaved to hide the latency of an addition. Their
 * elements are 256 bytes apart, which hardware does not prefetch, so software prefetches four lines at a time.
 * Prefetching past the end has no effect. */
static void loop_square_blocks(double *sums, const float *x, int64_t blocks) {
    int64_t b, i;
    int j;
    for (b = 0; b + 8 <= blocks; b += 8) {
        eight_doubles sum = {0};
        for (i = 0; i < 64; i += 8) {
            eight turned[8];
#pragma GCC unroll 4
            for (j = 0; j < 4; j++) __builtin_prefetch(x + b * 64 + SQUARES_AHEAD + i * 8 + j * 16);
            turn_eight(turned, x + b * 64 + i, 64);
#pragma GCC unroll 8
            for (j = 0; j < 8; j++) {
                const eight_doubles wide = __builtin_convertvector(turned[j], eight_doubles);
                sum += wide * wide;
            }
        }
        memcpy(sums + b, &sum, sizeof sum);
    }
    for (; b < blocks; b++) {
        double s = 0;
        for (i = 0; i < 64; i++) s += (double)x[b * 64 + i] * (double)x[b * 64 + i];
        sums[b] = s;
    }
}

#define SMALL_STEP vec_fma
#include "loops_small.h"

/* ---- attention ---- */

INLINE void mask_scores(const cpu_scores *p) {
    int64_t j;
    int i;
    if (!p->masked) return;
    for (j = 0; j < p->keys; j++) {
        float *row = p->s + j * CPU_BLOCK;
        const int32_t key = (int32_t)j;
        for (i = 0; i < CPU_BLOCK; i++) row[i] = (key >= p->first[i]) & (key <= p->last[i]) ? row[i] : -INFINITY;
    }
}

/* Returns the keys of the block up to the last one that a query of the band sees; later keys have zero weight. */
INLINE int64_t seen_keys(const cpu_scores *p, int64_t query) {
    const int32_t *last = p->last + query / CPU_WIDTH * CPU_WIDTH;
    int64_t seen = 0;
    int i;
    if (!p->masked) return p->keys;
    for (i = 0; i < CPU_WIDTH; i++) seen = last[i] >= seen ? (int64_t)last[i] + 1 : seen;
    return seen < p->keys ? seen : p->keys;
}

static void loop_transpose(float *out, const float *in, int64_t rows, int64_t width) {
    const int64_t ld = (width + CPU_WIDTH - 1) / CPU_WIDTH * CPU_WIDTH;
    int64_t i, j, q;
    for (i = 0; i < CPU_BLOCK; i += 8) {
        for (j = 0; j < width; j += 8) {
            eight turned[8] = {{0}};
            float part[64] = {0};
            if (rows - i >= 8) {
                turn_eight(turned, in + i * ld + j, ld);
            } else if (rows > i) {
                for (q = 0; q < rows - i; q++) memcpy(part + q * 8, in + (i + q) * ld + j, 8 * sizeof *part);
                turn_eight(turned, part, 8);
            }
            for (q = 0; q < 8 && q < width - j; q++) memcpy(out + (j + q) * CPU_BLOCK + i, &turned[q], sizeof *turned);
        }
    }
}

static void loop_softmax(const cpu_scores *p, float *max, float *sum, float *decay) {
    int64_t i, j;
    mask_scores(p);
    for (i = 0; i < CPU_BLOCK; i += VEC_LANES) {
        const int64_t seen = seen_keys(p, i);
        const vec old = vec_load(max + i);
        vec m = old, base, factor, total;
        for (j = 0; j < seen; j++) m = vec_max(m, vec_load(p->s + j * CPU_BLOCK + i));
        base = vec_less(m, vec_set(-3.0e38f), vec_set(0.0f), m); /* no visible key so far: -inf - -inf would be NaN */
        factor = vec_exp(old - base);
        total = vec_load(sum + i) * factor;
        for (j = 0; j < seen; j++) {
            const vec e = vec_exp(vec_load(p->s + j * CPU_BLOCK + i) - base);
            vec_store(p->s + j * CPU_BLOCK + i, e);
            total += e;
        }
        for (; j < p->keys; j++) vec_store(p->s + j * CPU_BLOCK + i, vec_set(0.0f));
        vec_store(max + i, m);
        vec_store(sum + i, total);
        vec_store(decay + i, factor);
    }
}

static void loop_probabilities(const cpu_scores *p, const float *lse) {
    int64_t i, j;
    mask_scores(p);
    for (i = 0; i < CPU_BLOCK; i += VEC_LANES) {
        const int64_t seen = seen_keys(p, i);
        float *column = p->s + i;
        for (j = 0; j < seen; j++) {
            vec_store(column + j * CPU_BLOCK, vec_exp(vec_load(column + j * CPU_BLOCK) - vec_load(lse + i)));
        }
        for (; j < p->keys; j++) vec_store(column + j * CPU_BLOCK, vec_set(0.0f));
    }
}

static void loop_score_gradient(float *d, const float *p, const float *delta, int64_t keys) {
    int64_t i, j;
    for (j = 0; j < keys * CPU_BLOCK; j += CPU_BLOCK) {
        for (i = 0; i < CPU_BLOCK; i += VEC_LANES) {
            vec_store(d + j + i, vec_load(p + j + i) * (vec_load(d + j + i) - vec_load(delta + i)));
        }
    }
}

/* ---- peak measurement ---- */

static double loop_multiply_add(float *left, int64_t rounds, float factor, float term) {
    enum { CHAINS = 12 }; /* two units, four or five cycles each; at least 16 registers */
    const vec f = vec_set(factor), t = vec_set(term);
    vec x[CHAINS];
    int64_t i;
    int j;
    for (j = 0; j < CHAINS; j++) x[j] = vec_set((float)j);
    for (i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (j = 0; j < CHAINS; j++) x[j] = vec_fma(x[j], f, t);
    }
    *left = 0.0f;
    for (j = 0; j < CHAINS; j++) *left += vec_sum(x[j]);
    return 2.0 * CHAINS * VEC_LANES * (double)rounds;
}

const cpu_loops LOOPS_TABLE = {
    .f32 = CELLS_TABLE(f32),
    .bf16 = CELLS_TABLE(bf16),
    .f16 = CELLS_TABLE(f16),
    .exp_row = loop_exp_row,
    .scale = loop_scale,
    .multiply = loop_multiply,
    .cap = loop_cap,
    .square_blocks = loop_square_blocks,
    .small = loop_small,
    .transpose = loop_transpose,
    .softmax = loop_softmax,
    .probabilities = loop_probabilities,
    .score_gradient = loop_score_gradient,
    .unpack_i8 = loop_unpack_i8,
    .unpack_f8 = loop_unpack_f8,
    .unpack_nf4 = loop_unpack_nf4,
    .multiply_add = loop_multiply_add,
};
