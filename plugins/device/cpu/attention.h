/* attention.h: what attention and its backward share: the view of one block of queries on the keys. */
#ifndef WEFT_DEVICE_CPU_ATTENTION_H
#define WEFT_DEVICE_CPU_ATTENTION_H

#include "cpu.h"

/* Operands of both directions; what a call lacks is NULL. In bf16 they are widened on their way in: scores,
 * probabilities and sums are fp32 all the way, and what is stored is rounded once. Where the processor multiplies pairs
 * of bf16, the products of two operands of the call (q k^T, do v^T) are left to it: a product of two bf16 is exact in
 * fp32. */
typedef struct attention {
    const weft_device *device;
    const weft_attention *args;
    int64_t rows;       /* S: keys that a batch row has room for */
    int64_t past;       /* places of it that are filled */
    int64_t padded;     /* head_dim up to a multiple of CPU_WIDTH */
    int64_t q_ld, k_ld; /* elements between places: H d and Hkv d */
    int64_t bytes;      /* of an element of q, k, v, o and their gradients */
    bool pairs;         /* products of two operands go by words of two bf16 */
    int64_t inner;      /* length of such a product: head_dim, or its words */
    int64_t inner_ld;   /* inner up to a multiple of CPU_WIDTH */
    void (*small)(const cpu_small *p);
    const cpu_cells *cells;
    const void *q, *k, *v, *new_k, *new_v, *out, *d_out;
    const int32_t *starts;
    void *o, *dq, *dk, *dv;
    float *lse;
    char *scratch;
} attention;

/* Up to CPU_BLOCK queries of one head that follow one another, and the keys [low, high) that some of them see. */
typedef struct query_block {
    int64_t batch, head, from, n;
    int64_t low, high;
    int32_t first[CPU_BLOCK], last[CPU_BLOCK]; /* per query, in places of the row; none for columns from n on */
    int32_t near_first[CPU_BLOCK], near_last[CPU_BLOCK]; /* the same, counted from the current block of keys */
} query_block;

/* Looks the operands of the forward up (and those of the backward if asked); not the workspace, whose size only means
 * something once the shape is known to be sound. */
weft_status attention_look_up(attention *a, operands *c, bool backward);
attention attention_of(const weft_device *device, const weft_attention *args);
/* A thread calls them before its first product of two operands and after its last. */
void attention_enter(const attention *a);
void attention_leave(const attention *a);
void attention_queries(const attention *a, query_block *b, int64_t batch, int64_t head, int64_t from);
/* scores: s, keys and the mask of the block of keys [key, key + keys). */
cpu_scores attention_scores(query_block *b, float *s, int64_t key, int64_t keys);
/* Products over a block of keys and one of queries. What no query of a band of CPU_WIDTH sees is left out: its scores
 * are not made, and its probabilities, which are zero, not summed. `sees`: the last key that the first query sees,
 * counted from the block's first.
 *   by_keys: c (keys, CPU_BLOCK) = a (keys, inner) b (inner, CPU_BLOCK)
 *   over_queries: c (keys, d) += a (keys, queries) b (queries, d)
 *   over_keys: c (queries, d) += a (queries, keys) b (keys, d) */
void attention_by_keys(const attention *a, const cpu_small *p, int64_t sees);
void attention_over_queries(const cpu_loops *loops, const cpu_small *p, int64_t sees);
void attention_over_keys(const cpu_loops *loops, const cpu_small *p, int64_t sees);
static inline int64_t attention_sees(const attention *a, const query_block *b, int64_t key) {
    return a->past + b->from - key;
}
/* out (rows, inner_ld): rows of head_dim elements each, `ld` apart, as products of two operands read them: factor *
 * row, or, where they are pairs, the row itself. */
void attention_pack(const attention *a, float *out, const void *from, int64_t ld, int64_t rows, float factor);
/* out (inner, CPU_BLOCK): the same across, by way of `packed`. */
void attention_turn(const attention *a, float *out, float *packed, const void *from, int64_t ld, int64_t rows,
                    float factor);
/* Pairs know nothing of the factor of the queries: scores are multiplied afterwards. */
void attention_scale(const attention *a, float *s, int64_t keys);
/* The soft cap of scores, if there is one; slope (keys, CPU_BLOCK), its derivative by them, may be NULL. */
void attention_cap(const attention *a, float *s, float *slope, int64_t keys);
/* Tells the processor to bring `rows` pieces of head_dim elements each, `ld` elements apart, from element `at` on.
 * Heads lie side by side in memory, so a head's rows are an order in which it fetches nothing by itself. */
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
