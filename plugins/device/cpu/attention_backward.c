/* attention_backward.c: gradients of q, k and v, in the forward's blocks; probabilities are recomputed from lse.
 *
 * With p = exp(s - lse), ds = p (do v^T - delta), delta = sum(do o) per query:
 *     dv = p^T do,  dk = ds^T (scale q),  dq = scale ds k.
 * A soft cap multiplies ds by its slope, 1 - tanh(s / cap)^2.
 * A task is one key-value head of a sequence with all queries that share it, head by head and block by block. dk and dv
 * therefore have one writer and a fixed order of sums. They are summed in fp32 in the thread's scratch. Keys and values
 * are packed there too, once, before the first block of queries that sees them. */
#include <math.h>
#include <omp.h>

#include "attention.h"

/* Scratch of one thread. */
typedef struct backward {
    float *q_across, *do_across; /* (inner, CPU_BLOCK): scale q and do, transposed */
    float *s, *ds;               /* (CPU_BLOCK keys, CPU_BLOCK) */
    float *q, *d_o, *dq;         /* (CPU_BLOCK, padded); q times scale */
    float *k, *dk, *dv;          /* (S, padded) */
    float *k_in, *v_in;          /* (S rounded up to CPU_WIDTH, inner_ld); k_in aliases k if they are equal */
    float *lse, *delta;          /* (CPU_BLOCK) */
    float *slope;                /* (CPU_BLOCK keys, CPU_BLOCK): of the soft cap; NULL without a cap */
} backward;

static int64_t backward_scratch(const attention *a, backward *f, char *base) {
    const int64_t across = cpu_floats(a->inner * CPU_BLOCK), s = cpu_floats(CPU_BLOCK * CPU_BLOCK);
    const int64_t rows = cpu_floats(CPU_BLOCK * a->padded), column = cpu_floats(CPU_BLOCK);
    const int64_t all = cpu_floats(a->rows * a->padded);
    const int64_t in = cpu_floats(size_round_up(a->rows, CPU_WIDTH) * a->inner_ld);
    float **const slots[] = {&f->q_across, &f->do_across, &f->s,   &f->ds,    &f->q,    &f->d_o,  &f->dq,   &f->k,
                             &f->dk,       &f->dv,        &f->lse, &f->delta, &f->v_in, &f->k_in, &f->slope};
    const int64_t bytes[] = {across,
                             across,
                             s,
                             s,
                             rows,
                             rows,
                             rows,
                             all,
                             all,
                             all,
                             column,
                             column,
                             in,
                             a->pairs ? in : 0,
                             a->args->cap > 0 ? s : 0};
    int64_t at = 0;
    size_t i = 0;
    for (i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        if (base != NULL) *slots[i] = (float *)(void *)(base + at);
        at += bytes[i];
    }
    if (base != NULL && !a->pairs) f->k_in = f->k;
    if (base != NULL && !(a->args->cap > 0)) f->slope = NULL;
    return at;
}

static int64_t backward_scratch_bytes(const attention *a) {
    backward f;
    return backward_scratch(a, &f, NULL);
}

int64_t cpu_attention_backward_workspace(const weft_device *device, const weft_attention *args) {
    const attention a = attention_of(device, args);
    return device->threads * backward_scratch_bytes(&a);
}

/* Rows of the next block of queries to prefetch, by their first elements. They are prefetched a few at a time, between
 * matmuls; all at once they would fill the processor's miss queue and stall it. */
typedef struct ahead {
    int64_t query, key, rows;
} ahead;

/* Returns the rows to prefetch while b's queries process the keys starting at `key`. */
static ahead rows_to_fetch(const attention *a, const query_block *b, int64_t key) {
    const int64_t first = b->low / CPU_BLOCK, blocks = size_ceil_div(b->high, CPU_BLOCK) - first;
    const int64_t rows = size_min(CPU_BLOCK, size_max(0, a->args->length - b->from - CPU_BLOCK));
    const int64_t low = cpu_cut(rows, blocks, key / CPU_BLOCK - first);
    const int64_t place = b->from + CPU_BLOCK + low, kv_head = b->head / (a->args->heads / a->args->kv_heads);
    const ahead next = {attention_query_at(a, b->batch, place, b->head),
                        attention_key_at(a, b->batch, a->past + place, kv_head),
                        cpu_cut(rows, blocks, key / CPU_BLOCK - first + 1) - low};
    return next;
}

/* Adds the gradients between the queries of b and the keys [key, key + keys), in both directions. */
static void gradients_of_block(const attention *a, query_block *b, const backward *f, int64_t key, int64_t keys) {
    const cpu_loops *loops = a->device->loops;
    const int64_t sees = attention_sees(a, b, key);
    const int64_t w = a->padded, in = a->inner_ld;
    const float *k = f->k_in + key * in, *v = f->v_in + key * in;
    const cpu_small scores = {f->s, k, f->q_across, CPU_BLOCK, in, 1, CPU_BLOCK, keys, CPU_BLOCK, a->inner, 0};
    const cpu_small slopes = {f->ds, v, f->do_across, CPU_BLOCK, in, 1, CPU_BLOCK, keys, CPU_BLOCK, a->inner, 0};
    const cpu_small to_v = {f->dv + key * w, f->s, f->d_o, w, CPU_BLOCK, 1, w, keys, w, b->n, 1};
    const cpu_small to_k = {f->dk + key * w, f->ds, f->q, w, CPU_BLOCK, 1, w, keys, w, b->n, 1};
    const cpu_small to_q = {f->dq, f->ds, f->k + key * w, w, 1, CPU_BLOCK, w, b->n, w, keys, 1};
    const cpu_scores p = attention_scores(b, f->s, key, keys);
    const ahead next = rows_to_fetch(a, b, key);
    attention_fetch(a, a->q, next.query, next.rows, a->q_ld);
    attention_by_keys(a, &scores, sees);
    attention_scale(a, f->s, keys);
    attention_cap(a, f->s, f->slope, keys);
    loops->probabilities(&p, f->lse);
    attention_fetch(a, a->d_out, next.query, next.rows, a->q_ld);
    if (a->dv != NULL) attention_over_queries(loops, &to_v, sees);
    attention_fetch(a, a->out, next.query, next.rows, a->q_ld);
    attention_by_keys(a, &slopes, sees);
    loops->score_gradient(f->ds, f->s, f->delta, keys);
    if (f->slope != NULL) loops->multiply(f->ds, f->slope, keys * CPU_BLOCK);
    attention_fetch(a, a->k, next.key, next.rows, a->k_ld);
    if (a->dk != NULL) attention_over_queries(loops, &to_k, sees);
    attention_fetch(a, a->v, next.key, next.rows, a->k_ld);
    if (a->dq != NULL) attention_over_keys(loops, &to_q, sees);
}

static void begin_backward_queries(const attention *a, const query_block *b, const backward *f) {
    const int64_t at = attention_query_at(a, b->batch, b->from, b->head), d = a->args->head_dim;
    const float scale = (float)a->args->scale;
    const void *q = cpu_from(a->q, at, a->bytes), *d_o = cpu_from(a->d_out, at, a->bytes);
    int64_t i = 0;
    a->cells->pack(f->q, q, a->q_ld, b->n, d, scale);
    a->cells->pack(f->d_o, d_o, a->q_ld, b->n, d, 1.0f);
    attention_turn(a, f->q_across, f->dq, q, a->q_ld, b->n, scale);
    attention_turn(a, f->do_across, f->dq, d_o, a->q_ld, b->n, 1.0f);
    memset(f->dq, 0, (size_t)(CPU_BLOCK * a->padded) * sizeof *f->dq);
    for (i = 0; i < CPU_BLOCK; i++) {
        const float lse = i < b->n ? a->lse[attention_lse_at(a, b->batch, b->from + i, b->head)] : 0;
        const void *d_row = cpu_from(d_o, i * a->q_ld, a->bytes), *row = cpu_from(a->out, at + i * a->q_ld, a->bytes);
        f->lse[i] = lse == -INFINITY ? 0 : lse; /* sees no key: everything is masked */
        f->delta[i] = i < b->n ? a->cells->dot(d_row, row, d) : 0;
    }
}

/* Packs keys and values [from, to) of a head into the thread's scratch. */
static void pack_rows_of_keys(const attention *a, const backward *f, int64_t batch, int64_t kv_head, int64_t from,
                              int64_t to) {
    const int64_t at = attention_key_at(a, batch, from, kv_head);
    const void *k = cpu_from(a->k, at, a->bytes), *v = cpu_from(a->v, at, a->bytes);
    a->cells->pack(f->k + from * a->padded, k, a->k_ld, to - from, a->args->head_dim, 1.0f);
    if (a->pairs) attention_pack(a, f->k_in + from * a->inner_ld, k, a->k_ld, to - from, 1.0f);
    attention_pack(a, f->v_in + from * a->inner_ld, v, a->k_ld, to - from, 1.0f);
}

static void run_backward_queries(const attention *a, const backward *f, int64_t batch, int64_t head, int64_t from) {
    query_block b;
    int64_t key = 0, i = 0;
    attention_queries(a, &b, batch, head, from);
    begin_backward_queries(a, &b, f);
    for (key = b.low / CPU_BLOCK * CPU_BLOCK; key < b.high; key += CPU_BLOCK) {
        gradients_of_block(a, &b, f, key, size_min(CPU_BLOCK, b.high - key));
    }
    if (a->dq == NULL) return;
    a->device->loops->scale(f->dq, b.n * a->padded, (float)a->args->scale);
    for (i = 0; i < b.n; i++) {
        a->cells->put(cpu_at(a->dq, attention_query_at(a, batch, from + i, head), a->bytes), f->dq + i * a->padded,
                      a->args->head_dim, 0);
    }
}

/* Stores one head's sums, all rows, into a gradient with k's layout. */
static void store_sums_of_head(const attention *a, void *to, const float *sums, int64_t batch, int64_t kv_head) {
    int64_t j = 0;
    if (to == NULL) return;
    for (j = 0; j < a->rows; j++) {
        a->cells->put(cpu_at(to, attention_key_at(a, batch, j, kv_head), a->bytes), sums + j * a->padded,
                      a->args->head_dim, 0);
    }
}

static void run_backward_task(const attention *a, int64_t task, const backward *f) {
    const int64_t kv_heads = a->args->kv_heads, group = a->args->heads / kv_heads;
    const int64_t batch = task / kv_heads, kv_head = task % kv_heads;
    int64_t head = 0, from = 0, taken = 0;
    memset(f->dk, 0, (size_t)(a->rows * a->padded) * sizeof *f->dk);
    memset(f->dv, 0, (size_t)(a->rows * a->padded) * sizeof *f->dv);
    for (head = kv_head * group; head < (kv_head + 1) * group; head++) {
        for (from = 0; from < a->args->length; from += CPU_BLOCK) {
            const int64_t high = a->past + size_min(a->args->length, from + CPU_BLOCK);
            if (high > taken) pack_rows_of_keys(a, f, batch, kv_head, taken, high);
            taken = size_max(taken, high);
            run_backward_queries(a, f, batch, head, from);
        }
    }
    store_sums_of_head(a, a->dk, f->dk, batch, kv_head);
    store_sums_of_head(a, a->dv, f->dv, batch, kv_head);
}

CPU_KERNEL(attention_backward, weft_attention) {
    operands c = OPERANDS("attention_backward", weft_attention, args, err);
    attention a = attention_of(device, args);
    int64_t tasks = 0, bytes = 0;
    (void)s;
    if (attention_look_up(&a, &c, true) != WEFT_OK) return c.status;
    bytes = backward_scratch_bytes(&a);
    a.scratch = operands_need_workspace(&c, args->workspace, device->threads * bytes);
    if (c.status != WEFT_OK) return c.status;
    tasks = args->batch * args->kv_heads;
#pragma omp parallel num_threads(device->threads)
    {
        backward f;
        (void)backward_scratch(&a, &f, a.scratch + omp_get_thread_num() * bytes);
        attention_enter(&a);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tasks; i++) run_backward_task(&a, i, &f);
        attention_leave(&a);
    }
    return WEFT_OK;
}
