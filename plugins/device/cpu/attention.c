/* attention.c: causal attention in blocks of CPU_BLOCK queries and keys (online softmax: Milakov and Gimelshein, arXiv
 * 1805.02867; Dao et al., arXiv 2205.14135).
 *
 * A block's scores are stored transposed, one column per query. Maximum, sum and exponentials then use complete vectors
 * of queries, and keys are read in place. Block matmuls use own loops: at head sizes 8 to 128 they run at 198-243
 * GFLOP/s on a core where oneDNN's calls reach 115-216 (Zen 5; with AVX2 105-121 and 91-116). A task has a few blocks
 * of queries. The sums of a block follow the order of the keys for any assignment of tasks to threads. */
#include <math.h>
#include <omp.h>

#include "attention.h"

/* Consecutive blocks of queries per block of keys: the keys' values are packed once for all of them. */
#define GROUP 4

/* Scratch of one thread for one block of queries. */
typedef struct forward {
    float *q;                 /* (inner, CPU_BLOCK): queries times scale, transposed */
    float *o;                 /* (CPU_BLOCK, padded) */
    float *max, *sum, *decay; /* (CPU_BLOCK) */
    float *s;                 /* (CPU_BLOCK keys, CPU_BLOCK); this and the following are shared by the group */
    float *k;                 /* (CPU_BLOCK, inner_ld); unused in fp32, where keys are read in place */
    float *v;                 /* (CPU_BLOCK, padded) */
} forward;

/* Lays out scratch and returns its bytes. f: (GROUP), or NULL for the size only. */
static int64_t forward_scratch(const attention *a, forward *f, char *base) {
    const int64_t q = cpu_floats(a->inner * CPU_BLOCK), s = cpu_floats(CPU_BLOCK * CPU_BLOCK);
    const int64_t rows = cpu_floats(CPU_BLOCK * a->padded), column = cpu_floats(CPU_BLOCK);
    const int64_t keys = a->bytes == 4 ? 0 : cpu_floats(CPU_BLOCK * a->inner_ld);
    const int64_t own = q + rows + 3 * column, shared = s + rows + keys;
    int64_t i = 0;
    for (i = 0; f != NULL && i < GROUP; i++) {
        char *at = base + shared + i * own;
        f[i].s = (float *)(void *)base;
        f[i].v = (float *)(void *)(base + s);
        f[i].k = (float *)(void *)(base + s + rows);
        f[i].q = (float *)(void *)at;
        f[i].o = (float *)(void *)(at + q);
        f[i].max = (float *)(void *)(at + q + rows);
        f[i].sum = (float *)(void *)(at + q + rows + column);
        f[i].decay = (float *)(void *)(at + q + rows + 2 * column);
    }
    return shared + GROUP * own;
}

int64_t cpu_attention_workspace(const weft_device *device, const weft_attention *args) {
    const attention a = attention_of(device, args);
    return device->threads * forward_scratch(&a, NULL, NULL);
}

/* Adds the keys [key, key + keys), stored at k with packed values, to o, max and sum. */
static void add_block_of_keys(const attention *a, query_block *b, const forward *f, const float *k, int64_t k_ld,
                              int64_t key, int64_t keys) {
    const cpu_loops *loops = a->device->loops;
    const int64_t sees = attention_sees(a, b, key);
    const cpu_small scores = {f->s, k, f->q, CPU_BLOCK, k_ld, 1, CPU_BLOCK, keys, CPU_BLOCK, a->inner, 0};
    const cpu_small values = {f->o, f->s, f->v, a->padded, 1, CPU_BLOCK, a->padded, b->n, a->padded, keys, 1};
    const cpu_scores p = attention_scores(b, f->s, key, keys);
    int64_t i = 0;
    attention_by_keys(a, &scores, sees);
    attention_scale(a, f->s, keys);
    attention_cap(a, f->s, NULL, keys);
    loops->softmax(&p, f->max, f->sum, f->decay);
    for (i = 0; i < b->n; i++) {
        if (f->decay[i] != 1) loops->scale(f->o + i * a->padded, a->padded, f->decay[i]);
    }
    attention_over_keys(loops, &values, sees);
}

/* Processes the keys starting at `key` for all blocks of the group that see some of them. Prefetches the following keys
 * meanwhile, a few at a time. */
static void share_block_of_keys(const attention *a, query_block *b, const forward *f, int64_t blocks, int64_t key) {
    const query_block *last = &b[blocks - 1];
    const int64_t at = attention_key_at(a, last->batch, key, last->head / (a->args->heads / a->args->kv_heads));
    const int64_t left = last->high - key, keys = size_min(CPU_BLOCK, left), ahead = size_min(CPU_BLOCK, left - keys);
    const int64_t next = at + CPU_BLOCK * a->k_ld;
    const bool there = a->bytes == (int64_t)sizeof(float);
    const float *k = there ? (const float *)a->k + at : f->k;
    int64_t i = 0;
    if (!there) attention_pack(a, f->k, cpu_from(a->k, at, a->bytes), a->k_ld, keys, 1.0f);
    a->cells->pack(f->v, cpu_from(a->v, at, a->bytes), a->k_ld, keys, a->args->head_dim, 1.0f);
    for (i = 0; i < blocks; i++) {
        const int64_t row = cpu_cut(ahead, blocks, i), rows = cpu_cut(ahead, blocks, i + 1) - row;
        attention_fetch(a, a->k, next + row * a->k_ld, rows, a->k_ld);
        attention_fetch(a, a->v, next + row * a->k_ld, rows, a->k_ld);
        if (key + CPU_BLOCK > b[i].low && key < b[i].high) {
            add_block_of_keys(a, &b[i], &f[i], k, there ? a->k_ld : a->inner_ld, key,
                              size_min(CPU_BLOCK, b[i].high - key));
        }
    }
}

static void begin_forward_queries(const attention *a, const query_block *b, const forward *f) {
    const void *q = cpu_from(a->q, attention_query_at(a, b->batch, b->from, b->head), a->bytes);
    int64_t i = 0;
    attention_turn(a, f->q, f->o, q, a->q_ld, b->n, (float)a->args->scale);
    memset(f->o, 0, (size_t)(CPU_BLOCK * a->padded) * sizeof *f->o);
    for (i = 0; i < CPU_BLOCK; i++) {
        f->max[i] = -INFINITY;
        f->sum[i] = 0;
    }
}

/* Writes o and lse. A query that sees no key has zeros in o. */
static void end_forward_queries(const attention *a, const query_block *b, const forward *f) {
    int64_t i = 0;
    for (i = 0; i < b->n; i++) {
        float *row = f->o + i * a->padded;
        if (f->sum[i] != 0) a->device->loops->scale(row, a->padded, 1.0f / f->sum[i]);
        a->cells->put(cpu_at(a->o, attention_query_at(a, b->batch, b->from + i, b->head), a->bytes), row,
                      a->args->head_dim, 0);
        if (a->lse != NULL) {
            a->lse[attention_lse_at(a, b->batch, b->from + i, b->head)] =
                (float)((double)f->max[i] + log((double)f->sum[i]));
        }
    }
}

/* Runs one task. Tasks go head by head, so that a head's keys stay in the cache. Later queries of a sequence see more
 * keys and come first, so that the last tasks are short. */
static void run_forward_task(const attention *a, int64_t task, const forward *f) {
    const int64_t groups = size_ceil_div(a->args->length, GROUP * CPU_BLOCK);
    const int64_t column = task / groups, from = (groups - 1 - task % groups) * GROUP * CPU_BLOCK;
    const int64_t blocks = size_min(GROUP, size_ceil_div(a->args->length - from, CPU_BLOCK));
    const int64_t high = a->past + size_min(a->args->length, from + GROUP * CPU_BLOCK);
    query_block b[GROUP];
    int64_t key = 0, low = high, i = 0;
    for (i = 0; i < blocks; i++) {
        attention_queries(a, &b[i], column / a->args->heads, column % a->args->heads, from + i * CPU_BLOCK);
        begin_forward_queries(a, &b[i], &f[i]);
        low = size_min(low, b[i].low);
    }
    for (key = low / CPU_BLOCK * CPU_BLOCK; key < high; key += CPU_BLOCK) {
        share_block_of_keys(a, b, f, blocks, key);
    }
    for (i = 0; i < blocks; i++) end_forward_queries(a, &b[i], &f[i]);
}

/* Appends this call's rows to the cache. */
static void append(const attention *a, const void *cache, const void *rows) {
    const size_t bytes = (size_t)(a->args->length * a->k_ld * a->bytes);
    int64_t b = 0;
    for (b = 0; rows != NULL && b < a->args->batch; b++) {
        memcpy((char *)(uintptr_t)cache + (b * a->rows + a->past) * a->k_ld * a->bytes,
               (const char *)rows + (size_t)b * bytes, bytes);
    }
}

CPU_KERNEL(attention, weft_attention) {
    operands c = OPERANDS("attention", weft_attention, args, err);
    attention a = attention_of(device, args);
    int64_t tasks = 0, bytes = 0;
    (void)s;
    if (attention_look_up(&a, &c, false) != WEFT_OK) return c.status;
    bytes = forward_scratch(&a, NULL, NULL);
    a.scratch = operands_need_workspace(&c, args->workspace, device->threads * bytes);
    if (c.status != WEFT_OK) return c.status;
    append(&a, a.k, a.new_k);
    append(&a, a.v, a.new_v);
    tasks = args->batch * args->heads * size_ceil_div(args->length, GROUP * CPU_BLOCK);
#pragma omp parallel num_threads(device->threads)
    {
        forward f[GROUP];
        (void)forward_scratch(&a, f, a.scratch + omp_get_thread_num() * bytes);
        attention_enter(&a);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tasks; i++) run_forward_task(&a, i, f);
        attention_leave(&a);
    }
    return WEFT_OK;
}
