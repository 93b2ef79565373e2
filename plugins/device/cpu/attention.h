/* attention.h: shared parts of attention and its backward: operands, and the keys that a block of queries sees. */
#ifndef WEFT_DEVICE_CPU_ATTENTION_H
#define WEFT_DEVICE_CPU_ATTENTION_H

#include "cpu.h"

/* Operands of both directions; NULL where absent. bf16 operands are widened when read. Scores, probabilities and sums
 * are fp32, and results are rounded once. If the processor multiplies bf16 pairs, it computes the products of two
 * operands (q k^T, do v^T): a product of two bf16 is exact in fp32. */
typedef struct attention {
    const weft_device *device;
    const weft_attention *args;
    int64_t rows;       /* S: capacity in keys of a sequence */
    int64_t past;       /* filled positions of it */
    int64_t padded;     /* head_dim rounded up to a multiple of CPU_WIDTH */
    int64_t q_ld, k_ld; /* elements between positions: H d and Hkv d */
    int64_t bytes;      /* of an element of q, k, v, o and their gradients */
    bool pairs;         /* products of two operands use words of two bf16 */
    int64_t inner;      /* inner dimension of such a product: head_dim, or its words */
    int64_t inner_ld;   /* inner rounded up to a multiple of CPU_WIDTH */
    void (*small)(const cpu_small *p);
    const cpu_cells *cells;
    const void *q, *k, *v, *new_k, *new_v, *out, *d_out;
    const int32_t *starts;
    void *o, *dq, *dk, *dv;
    float *lse;
    char *scratch;
} attention;

/* Up to CPU_BLOCK consecutive queries of one head, and the keys [low, high) that some of them see. */
typedef struct query_block {
    int64_t batch, head, from, n;
    int64_t low, high;
    int32_t first[CPU_BLOCK], last[CPU_BLOCK];           /* per query, as positions; empty from column n on */
    int32_t near_first[CPU_BLOCK], near_last[CPU_BLOCK]; /* the same, relative to the current block of keys */
} query_block;

/* Looks up the operands of the forward, and of the backward if `backward`. Excludes the workspace, whose size is only
 * valid for a validated shape. */
weft_status attention_look_up(attention *a, operands *c, bool backward);
attention attention_of(const weft_device *device, const weft_attention *args);
/* Each thread calls them before its first product of two operands and after its last. */
void attention_enter(const attention *a);
void attention_leave(const attention *a);
void attention_queries(const attention *a, query_block *b, int64_t batch, int64_t head, int64_t from);
/* Returns scores: s, keys and the mask of the keys [key, key + keys). */
cpu_scores attention_scores(query_block *b, float *s, int64_t key, int64_t keys);
/* Matmuls of a block of keys with a block of queries. They skip keys that no query of a band of CPU_WIDTH sees: their
 * scores are not computed, and their zero probabilities not added. `sees`: the last key that the first query sees,
 * relative to the block.
 *   by_keys: c (keys, CPU_BLOCK) = a (keys, inner) b (inner, CPU_BLOCK)
 *   over_queries: c (keys, d) += a (keys, queries) b (queries, d)
 *   over_keys: c (queries, d) += a (queries, keys) b (keys, d) */
void attention_by_keys(const attention *a, const cpu_small *p, int64_t sees);
void attention_over_queries(const cpu_loops *loops, const cpu_small *p, int64_t sees);
void attention_over_keys(const cpu_loops *loops, const cpu_small *p, int64_t sees);
static inline int64_t attention_sees(const attention *a, const query_block *b, int64_t key) {
    return a->past + b->from - key;
}
/* Packs rows of head_dim elements, `ld` apart, into out (rows, inner_ld) for products of two operands: factor * row,
 * or, with pairs, the unscaled row. */
void attention_pack(const attention *a, float *out, const void *from, int64_t ld, int64_t rows, float factor);
/* Same transposed, out (inner, CPU_BLOCK), through `packed`. */
void attention_turn(const attention *a, float *out, float *packed, const void *from, int64_t ld, int64_t rows,
                    float factor);
/* Scales the scores; pairs do not include the queries' factor. */
void attention_scale(const attention *a, float *s, int64_t keys);
/* Applies the soft cap to the scores, if there is one. slope (keys, CPU_BLOCK), its derivative, may be NULL. */
void attention_cap(const attention *a, float *s, float *slope, int64_t keys);
/* Prefetches `rows` rows of head_dim elements, `ld` elements apart, starting at element `at`. Heads are interleaved in
 * memory, so the hardware does not prefetch a head's rows. */
void attention_fetch(const attention *a, const void *from, int64_t at, int64_t rows, int64_t ld);
static inline int64_t attention_query_at(const attention *a, int64_t batch, int64_t place, int64_t head) {
    return (batch * a->args->length + place) * a->q_ld + head * a->args->head_dim;
}
static inline int64_t attention_key_at(const attention *a, int64_t batch, int64_t place, int64_t kv_head) {
    return (batch * a->rows + place) * a->k_ld + kv_head * a->args->head_dim;
}
static inline int64_t attention_lse_at(const attention *a, int64_t batch, int64_t place, int64_t head) {
    return (batch * a->args->heads + head) * a->args->length + place;
}

#endif
