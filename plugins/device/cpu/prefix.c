/* prefix.c: attention to keys that every query sees (weft_prefix), with the attention loops: CPU_BLOCK queries of a
 * head at a time, with transposed scores. Joining continues an online softmax from its o and lse. Keys are widened and
 * rotated once, before. Gradients of keys and values are sums over the queries' rows. The shape divides the rows into
 * runs; one thread sums a run, and runs are added in order. */
#include <math.h>
#include <omp.h>

#include "cpu.h"

#define MAX_RUNS 16

typedef struct prefix {
    const weft_device *device;
    const weft_prefix *args;
    const cpu_cells *cells;
    int64_t bytes, padded, q_ld, k_ld; /* padded: head_dim rounded up to complete vectors; distances of positions */
    int64_t blocks, all_blocks;        /* of queries: per sequence, and of all sequences */
    const void *q, *k, *v, *d_o;
    const float *turn_in;
    void *o, *dq, *dk, *dv;
    float *lse;
    float *turn, *keys, *values; /* turn (rotary_dim); keys, values (kv_heads, places, padded) */
    float *key_runs, *value_runs;
    char *scratch;
} prefix;

/* Scratch of one thread. */
typedef struct block {
    float *q, *q_across, *o, *o_across, *dq; /* (CPU_BLOCK, padded); *_across: (head_dim, CPU_BLOCK) */
    float *s, *d;                            /* (CPU_BLOCK keys, CPU_BLOCK) */
    float *max, *sum, *decay;                /* (CPU_BLOCK) */
    int64_t batch, from, n, head;
} block;

static prefix prefix_of(const weft_device *device, const weft_prefix *args) {
    prefix p = {.device = device, .args = args, .cells = cpu_cells_of(device, args->dtype)};
    p.bytes = cpu_cell_bytes(args->dtype);
    p.padded = size_round_up(args->head_dim, CPU_WIDTH);
    p.q_ld = args->heads * args->head_dim;
    p.k_ld = args->kv_heads * args->head_dim;
    p.blocks = size_ceil_div(args->length, CPU_BLOCK);
    p.all_blocks = p.blocks * args->batch;
    return p;
}

static float *take(char **at, int64_t floats) {
    float *out = (float *)(void *)*at;
    *at += cpu_floats(floats);
    return out;
}

static int64_t prefix_runs(const prefix *p) {
    return size_min(MAX_RUNS, p->all_blocks);
}

static int64_t key_floats(const prefix *p) {
    return p->args->kv_heads * p->args->places * p->padded;
}

static int64_t block_scratch(const prefix *p, block *b, char *base) {
    char *at = base;
    const int64_t rows = CPU_BLOCK * p->padded, square = CPU_BLOCK * CPU_BLOCK;
    b->q = take(&at, rows);
    b->q_across = take(&at, rows);
    b->o = take(&at, rows);
    b->o_across = take(&at, rows);
    b->dq = take(&at, rows);
    b->s = take(&at, square);
    b->d = take(&at, square);
    b->max = take(&at, CPU_BLOCK);
    b->sum = take(&at, CPU_BLOCK);
    b->decay = take(&at, CPU_BLOCK);
    return at - base;
}

/* Lays out the workspace at `base`, or computes its size. */
static int64_t prefix_lay_out(prefix *p, char *base, bool backward) {
    char *at = base;
    block b;
    p->turn = take(&at, p->args->rotary_dim);
    p->keys = take(&at, key_floats(p));
    p->values = take(&at, key_floats(p));
    if (backward) {
        p->key_runs = take(&at, prefix_runs(p) * key_floats(p));
        p->value_runs = take(&at, prefix_runs(p) * key_floats(p));
    }
    p->scratch = at;
    return at - base + p->device->threads * block_scratch(p, &b, at);
}

static int64_t workspace_bytes(const weft_device *device, const weft_prefix *args, bool backward) {
    prefix p = prefix_of(device, args);
    char *base = (char *)(uintptr_t)CPU_PAGE; /* a dummy address, never accessed */
    return prefix_lay_out(&p, base, backward);
}

int64_t cpu_prefix_workspace(const weft_device *device, const weft_prefix *args) {
    return workspace_bytes(device, args, false);
}

int64_t cpu_prefix_backward_workspace(const weft_device *device, const weft_prefix *args) {
    return workspace_bytes(device, args, true);
}

static weft_status prefix_look_up(prefix *p, operands *c, const weft_device *device, const weft_prefix *args,
                                  bool backward) {
    const int64_t rows = size_times(args->batch, args->length);
    if (c->status != WEFT_OK) return c->status;
    operands_dtype(c, "dtype", args->dtype);
    operands_prefix(c, args);
    if (c->status != WEFT_OK) return c->status;
    *p = prefix_of(device, args);
    p->q = operands_need(c, args->q, "q", rows, p->q_ld, p->bytes);
    p->k = operands_need(c, args->k, "k", args->places, p->k_ld, p->bytes);
    p->v = operands_need(c, args->v, "v", args->places, p->k_ld, p->bytes);
    p->turn_in = operands_may(c, args->turn, "turn", args->rotary_dim, 1, 4);
    p->o = operands_need(c, args->o, "o", rows, p->q_ld, p->bytes);
    p->lse = backward || args->join ? operands_need(c, args->lse, "lse", rows, args->heads, 4)
                                    : operands_may(c, args->lse, "lse", rows, args->heads, 4);
    return c->status;
}

/* ---- keys and values in matmul layout ---- */

/* Computes the rotation; divides by the common factor of cosines and sines, which is not part of it. */
static void take_turn(prefix *p) {
    const int64_t half = p->args->rotary_dim / 2;
    for (int64_t i = 0; i < half && p->turn_in != NULL; i++) {
        const float c = p->turn_in[i], s = p->turn_in[half + i], length = sqrtf(c * c + s * s);
        p->turn[i] = c / length;
        p->turn[half + i] = s / length;
    }
}

static void turn_key(const prefix *p, float *key, int inverse) {
    const int64_t half = p->args->rotary_dim / 2;
    if (p->turn_in != NULL) p->device->loops->f32.rope_head(key, key, p->turn, p->turn + half, half, inverse, 0);
}

static void take_keys(prefix *p) {
    const int64_t places = p->args->places, d = p->args->head_dim, rows = p->args->kv_heads * places;
    take_turn(p);
#pragma omp parallel for schedule(static) num_threads(p->device->threads)
    for (int64_t i = 0; i < rows; i++) {
        const int64_t from = i % places * p->k_ld + i / places * d;
        p->cells->pack(p->keys + i * p->padded, cpu_from(p->k, from, p->bytes), p->k_ld, 1, d, 1.0f);
        p->cells->pack(p->values + i * p->padded, cpu_from(p->v, from, p->bytes), p->k_ld, 1, d, 1.0f);
        turn_key(p, p->keys + i * p->padded, 1);
    }
}

/* ---- one block of queries ---- */

static int64_t query_at(const prefix *p, const block *b, int64_t i) {
    return (b->batch * p->args->length + b->from + i) * p->q_ld + b->head * p->args->head_dim;
}

static int64_t lse_at(const prefix *p, const block *b) {
    return (b->batch * p->args->heads + b->head) * p->args->length + b->from;
}

static void begin_block(const prefix *p, block *b, int64_t i, int64_t head) {
    b->batch = i / p->blocks;
    b->from = i % p->blocks * CPU_BLOCK;
    b->n = size_min(CPU_BLOCK, p->args->length - b->from);
    b->head = head;
    p->cells->pack(b->q, cpu_from(p->q, query_at(p, b, 0), p->bytes), p->q_ld, b->n, p->args->head_dim,
                   (float)p->args->scale);
    p->device->loops->transpose(b->q_across, b->q, b->n, p->args->head_dim);
}

/* Returns this head's keys or values from `key` on. */
static const float *rows_of(const prefix *p, const float *all, int64_t key, int64_t head) {
    const int64_t kv_head = head / (p->args->heads / p->args->kv_heads);
    return all + (kv_head * p->args->places + key) * p->padded;
}

/* s (keys, CPU_BLOCK) = rows (keys, head_dim) times the transposed block `across` */
static void scores(const prefix *p, const float *rows, const float *across, float *s, int64_t keys) {
    const int64_t d = p->args->head_dim;
    const cpu_small product = {s, rows, across, CPU_BLOCK, p->padded, 1, CPU_BLOCK, keys, CPU_BLOCK, d, 0};
    p->device->loops->small(&product);
}

/* ---- forward ---- */

/* Starts an online softmax, or continues one from its o and lse. */
static void begin_softmax(const prefix *p, const block *b) {
    const void *o = cpu_from(p->o, query_at(p, b, 0), p->bytes);
    for (int64_t i = 0; i < CPU_BLOCK; i++) {
        const bool goes_on = p->args->join && i < b->n;
        b->max[i] = goes_on ? p->lse[lse_at(p, b) + i] : -INFINITY;
        b->sum[i] = goes_on ? 1.0f : 0.0f;
    }
    if (p->args->join) p->cells->pack(b->o, o, p->q_ld, b->n, p->args->head_dim, 1.0f);
    else memset(b->o, 0, (size_t)(b->n * p->padded) * sizeof *b->o);
}

static void add_keys(const prefix *p, const block *b, int64_t key, int64_t keys) {
    const cpu_loops *loops = p->device->loops;
    const cpu_scores all = {b->s, keys, NULL, NULL, 0};
    const cpu_small values = {
        b->o, b->s, rows_of(p, p->values, key, b->head), p->padded, 1, CPU_BLOCK, p->padded, b->n, p->padded, keys, 1};
    scores(p, rows_of(p, p->keys, key, b->head), b->q_across, b->s, keys);
    loops->softmax(&all, b->max, b->sum, b->decay);
    for (int64_t i = 0; i < b->n; i++)
        if (b->decay[i] != 1) loops->scale(b->o + i * p->padded, p->padded, b->decay[i]);
    loops->small(&values);
}

static void end_softmax(const prefix *p, const block *b) {
    for (int64_t i = 0; i < b->n; i++) {
        float *row = b->o + i * p->padded;
        p->device->loops->scale(row, p->padded, 1.0f / b->sum[i]);
        p->cells->put(cpu_at(p->o, query_at(p, b, i), p->bytes), row, p->args->head_dim, 0);
        if (p->lse != NULL) p->lse[lse_at(p, b) + i] = (float)((double)b->max[i] + log((double)b->sum[i]));
    }
}

CPU_KERNEL(prefix, weft_prefix) {
    operands c = OPERANDS("prefix", weft_prefix, args, err);
    prefix p = {0};
    char *workspace = NULL;
    (void)s;
    if (prefix_look_up(&p, &c, device, args, false) != WEFT_OK) return c.status;
    workspace = operands_need_workspace(&c, args->workspace, cpu_prefix_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    (void)prefix_lay_out(&p, workspace, false);
    take_keys(&p);
#pragma omp parallel num_threads(device->threads)
    {
        block b;
        const int64_t bytes = block_scratch(&p, &b, p.scratch);
        (void)block_scratch(&p, &b, p.scratch + omp_get_thread_num() * bytes);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < p.all_blocks * args->heads; i++) {
            begin_block(&p, &b, i / args->heads, i % args->heads);
            begin_softmax(&p, &b);
            for (int64_t key = 0; key < args->places; key += CPU_BLOCK)
                add_keys(&p, &b, key, size_min(CPU_BLOCK, args->places - key));
            end_softmax(&p, &b);
        }
    }
    return WEFT_OK;
}

/* ---- backward ---- */

/* Loads the transposed gradient of o, and delta = sum(o d_o) per query into b->sum. */
static void begin_gradients(const prefix *p, const block *b) {
    const int64_t d = p->args->head_dim;
    p->cells->pack(b->o, cpu_from(p->d_o, query_at(p, b, 0), p->bytes), p->q_ld, b->n, d, 1.0f);
    p->device->loops->transpose(b->o_across, b->o, b->n, d);
    memset(b->dq, 0, (size_t)(b->n * p->padded) * sizeof *b->dq);
    for (int64_t i = 0; i < CPU_BLOCK; i++) {
        const int64_t at = query_at(p, b, i);
        b->max[i] = i < b->n ? p->lse[lse_at(p, b) + i] : 0.0f;
        b->sum[i] = i < b->n ? p->cells->dot(cpu_from(p->o, at, p->bytes), cpu_from(p->d_o, at, p->bytes), d) : 0.0f;
    }
}

/* Adds the gradients of the keys from `key` on to dq and to the run's sums. */
static void add_gradients(const prefix *p, const block *b, int64_t key, int64_t keys, float *dk, float *dv) {
    const cpu_loops *loops = p->device->loops;
    const cpu_scores all = {b->s, keys, NULL, NULL, 0};
    const cpu_small for_v = {
        dv + key * p->padded, b->s, b->o, p->padded, CPU_BLOCK, 1, p->padded, keys, p->padded, b->n, 1};
    const cpu_small for_k = {
        dk + key * p->padded, b->d, b->q, p->padded, CPU_BLOCK, 1, p->padded, keys, p->padded, b->n, 1};
    const cpu_small for_q = {
        b->dq, b->d, rows_of(p, p->keys, key, b->head), p->padded, 1, CPU_BLOCK, p->padded, b->n, p->padded, keys, 1};
    scores(p, rows_of(p, p->keys, key, b->head), b->q_across, b->s, keys);
    loops->probabilities(&all, b->max);
    scores(p, rows_of(p, p->values, key, b->head), b->o_across, b->d, keys);
    loops->score_gradient(b->d, b->s, b->sum, keys);
    loops->small(&for_v);
    loops->small(&for_k);
    loops->small(&for_q);
}

static void end_gradients(const prefix *p, const block *b) {
    for (int64_t i = 0; i < b->n && p->dq != NULL; i++) {
        float *row = b->dq + i * p->padded;
        p->device->loops->scale(row, p->padded, (float)p->args->scale);
        p->cells->put(cpu_at(p->dq, query_at(p, b, i), p->bytes), row, p->args->head_dim, p->args->accumulate_dq);
    }
}

/* Processes the blocks of run i for a key head, one query head after another. */
static void gradients_of_run(const prefix *p, block *b, int64_t kv_head, int64_t i) {
    const int64_t runs = prefix_runs(p), group = p->args->heads / p->args->kv_heads;
    const int64_t at = (i * p->args->kv_heads + kv_head) * p->args->places * p->padded;
    float *dk = p->key_runs + at, *dv = p->value_runs + at;
    memset(dk, 0, (size_t)(p->args->places * p->padded) * sizeof *dk);
    memset(dv, 0, (size_t)(p->args->places * p->padded) * sizeof *dv);
    for (int64_t n = cpu_cut(p->all_blocks, runs, i); n < cpu_cut(p->all_blocks, runs, i + 1); n++) {
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
            begin_block(p, b, n, head);
            begin_gradients(p, b);
            for (int64_t key = 0; key < p->args->places; key += CPU_BLOCK)
                add_gradients(p, b, key, size_min(CPU_BLOCK, p->args->places - key), dk, dv);
            end_gradients(p, b);
        }
    }
}

/* Adds the runs of one key in order, rotated back. */
static void end_key(const prefix *p, int64_t i) {
    const int64_t places = p->args->places, to = i % places * p->k_ld + i / places * p->args->head_dim;
    float *dk = p->key_runs + i * p->padded, *dv = p->value_runs + i * p->padded;
    for (int64_t r = 1; r < prefix_runs(p); r++) {
        p->device->loops->f32.add(dk, dk, dk + r * key_floats(p), p->padded);
        p->device->loops->f32.add(dv, dv, dv + r * key_floats(p), p->padded);
    }
    turn_key(p, dk, 0);
    p->cells->put(cpu_at(p->dk, to, p->bytes), dk, p->args->head_dim, 0);
    p->cells->put(cpu_at(p->dv, to, p->bytes), dv, p->args->head_dim, 0);
}

static void all_gradients(prefix *p) {
    const int64_t tasks = p->args->kv_heads * prefix_runs(p);
#pragma omp parallel num_threads(p->device->threads)
    {
        block b;
        const int64_t bytes = block_scratch(p, &b, p->scratch);
        (void)block_scratch(p, &b, p->scratch + omp_get_thread_num() * bytes);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < tasks; i++) gradients_of_run(p, &b, i % p->args->kv_heads, i / p->args->kv_heads);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < p->args->kv_heads * p->args->places; i++) end_key(p, i);
    }
}

CPU_KERNEL(prefix_backward, weft_prefix) {
    operands c = OPERANDS("prefix_backward", weft_prefix, args, err);
    const int64_t rows = size_times(args->batch, args->length);
    prefix p = {0};
    char *workspace = NULL;
    (void)s;
    if (prefix_look_up(&p, &c, device, args, true) != WEFT_OK) return c.status;
    p.d_o = operands_need(&c, args->d_o, "d_o", rows, p.q_ld, p.bytes);
    p.dq = operands_may(&c, args->dq, "dq", rows, p.q_ld, p.bytes);
    p.dk = operands_need(&c, args->dk, "dk", args->places, p.k_ld, p.bytes);
    p.dv = operands_need(&c, args->dv, "dv", args->places, p.k_ld, p.bytes);
    workspace = operands_need_workspace(&c, args->workspace, cpu_prefix_backward_workspace(device, args));
    if (c.status != WEFT_OK) return c.status;
    (void)prefix_lay_out(&p, workspace, true);
    take_keys(&p);
    all_gradients(&p);
    return WEFT_OK;
}
