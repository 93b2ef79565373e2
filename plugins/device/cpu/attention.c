/* attention.c: causal attention in blocks of CPU_BLOCK queries and keys (online softmax: Milakov and Gimelshein, arXiv
 * 1805.02867; Dao et al., arXiv 2205.14135).
 *
 * A block's scores stand transposed, a column per query: maximum, sum and exponentials then run over whole vectors of
 * queries, and the keys are read where they lie. The products of blocks are loops of our own: at head sizes 8 to 128
 * they run at 198-243 GFLOP/s on a core where oneDNN's calls give 115-216 (Zen 5; as AVX2 105-121 and 91-116). Every
 * block of queries is a task by itself, so the order of its sums is that of the keys, whoever computes it.
 */
#include <math.h>
#include <omp.h>

#include "attention.h"

/* One thread's scratch. */
typedef struct forward {
    float *q;                 /* (d, CPU_BLOCK): queries times scale, transposed */
    float *s;                 /* (CPU_BLOCK keys, CPU_BLOCK) */
    float *k, *v, *o;         /* (CPU_BLOCK, padded); k only where keys are widened */
    float *max, *sum, *decay; /* (CPU_BLOCK) */
} forward;

static int64_t lay_out(const attention *a, forward *f, char *base) {
    const int64_t q = cpu_floats(a->args->head_dim * CPU_BLOCK), s = cpu_floats(CPU_BLOCK * CPU_BLOCK);
    const int64_t rows = cpu_floats(CPU_BLOCK * a->padded), column = cpu_floats(CPU_BLOCK);
    if (f != NULL) {
        f->q = (float *)(void *)base;
        f->s = (float *)(void *)(base + q);
        f->v = (float *)(void *)(base + q + s);
        f->o = (float *)(void *)(base + q + s + rows);
        f->max = (float *)(void *)(base + q + s + 2 * rows);
        f->sum = (float *)(void *)(base + q + s + 2 * rows + column);
        f->decay = (float *)(void *)(base + q + s + 2 * rows + 2 * column);
        f->k = (float *)(void *)(base + q + s + 2 * rows + 3 * column);
    }
    return q + s + (a->bytes == 4 ? 2 : 3) * rows + 3 * column;
}

int64_t cpu_attention_workspace(const weft_device *device, const weft_attention *args) {
    const attention a = attention_of(device, args);
    return device->threads * lay_out(&a, NULL, NULL);
}

/* o, max and sum take in the keys [key, key + keys). */
static void take_keys(const attention *a, query_block *b, const forward *f, int64_t key, int64_t keys) {
    const cpu_loops *loops = a->device->loops;
    const int64_t at = attention_key_at(a, b->batch, key, b->head / (a->args->heads / a->args->kv_heads));
    const int64_t sees = attention_sees(a, b, key);
    int64_t k_ld = 0;
    const float *k = attention_wide(a, a->k, at, keys, f->k, &k_ld);
    const cpu_small scores = {f->s, k, f->q, CPU_BLOCK, k_ld, 1, CPU_BLOCK, keys, CPU_BLOCK, a->args->head_dim, 0};
    const cpu_small values = {f->o, f->s, f->v, a->padded, 1, CPU_BLOCK, a->padded, b->n, a->padded, keys, 1};
    const cpu_scores p = attention_scores(b, f->s, key, keys);
    int64_t i = 0;
    attention_by_keys(loops, &scores, sees);
    loops->softmax(&p, f->max, f->sum, f->decay);
    for (i = 0; i < b->n; i++) loops->scale(f->o + i * a->padded, a->padded, f->decay[i]);
    a->cells->pack(f->v, cpu_from(a->v, at, a->bytes), a->k_ld, keys, a->args->head_dim, 1.0f);
    attention_over_keys(loops, &values, sees);
}

static void begin_queries(const attention *a, const query_block *b, const forward *f) {
    const void *q = cpu_from(a->q, attention_query_at(a, b->batch, b->from, b->head), a->bytes);
    int64_t i = 0;
    a->cells->pack(f->o, q, a->q_ld, b->n, a->args->head_dim, (float)a->args->scale);
    a->device->loops->transpose(f->q, f->o, b->n, a->args->head_dim);
    memset(f->o, 0, (size_t)(CPU_BLOCK * a->padded) * sizeof *f->o);
    for (i = 0; i < CPU_BLOCK; i++) {
        f->max[i] = -INFINITY;
        f->sum[i] = 0;
    }
}

/* A query that sees no key has zeros as its output. */
static void end_queries(const attention *a, const query_block *b, const forward *f) {
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

/* Head after head, whose keys then stay in the cache. Later blocks of a row see more keys: they come first, so that the
 * last tasks to be shared out are short. */
static void run_task(const attention *a, int64_t task, const forward *f) {
    const int64_t blocks = cpu_ceil_div(a->args->length, CPU_BLOCK);
    const int64_t column = task / blocks, block = blocks - 1 - task % blocks;
    query_block b;
    int64_t key = 0;
    attention_queries(a, &b, column / a->args->heads, column % a->args->heads, block * CPU_BLOCK);
    begin_queries(a, &b, f);
    for (key = b.low / CPU_BLOCK * CPU_BLOCK; key < b.high; key += CPU_BLOCK) {
        take_keys(a, &b, f, key, cpu_min(CPU_BLOCK, b.high - key));
    }
    end_queries(a, &b, f);
}

CPU_KERNEL(attention, weft_attention) {
    cpu_check c = cpu_check_begin("attention", args->struct_size, sizeof *args, err);
    attention a = attention_of(device, args);
    int64_t tasks = 0, bytes = 0;
    (void)s;
    if (attention_look_up(&a, &c, false) != WEFT_OK) return c.status;
    bytes = lay_out(&a, NULL, NULL);
    a.scratch = cpu_need_workspace(&c, args->workspace, device->threads * bytes);
    if (c.status != WEFT_OK) return c.status;
    tasks = args->batch * args->heads * cpu_ceil_div(args->length, CPU_BLOCK);
#pragma omp parallel num_threads(device->threads)
    {
        forward f;
        (void)lay_out(&a, &f, a.scratch + omp_get_thread_num() * bytes);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tasks; i++) run_task(&a, i, &f);
    }
    return WEFT_OK;
}
