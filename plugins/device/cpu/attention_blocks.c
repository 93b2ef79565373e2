/* attention_blocks.c: operands of attention, and the visible keys of a block of queries. */
#include "attention.h"

attention attention_of(const weft_device *device, const weft_attention *args) {
    attention a = {.device = device, .args = args};
    a.rows = args->cache_rows > 0 ? args->cache_rows : args->length;
    a.padded = size_round_up(size_max(args->head_dim, 1), CPU_WIDTH);
    a.q_ld = size_times(args->heads, args->head_dim);
    a.k_ld = size_times(args->kv_heads, args->head_dim);
    a.bytes = cpu_cell_bytes(args->dtype);
    a.cells = cpu_cells_of(device, args->dtype);
    a.pairs = args->dtype == WEFT_BF16 && cpu_multiplies_bf16(device);
    a.small = a.pairs ? device->panels_bf16->small : device->loops->small;
    a.inner = a.pairs ? size_ceil_div(args->head_dim, 2) : args->head_dim;
    a.inner_ld = size_round_up(size_max(a.inner, 1), CPU_WIDTH);
    if (a.pairs && device->panels_bf16->packs_a) a.inner = a.inner_ld; /* tiles are complete */
    return a;
}

static void check_attention_shape(operands *c, const attention *a) {
    const weft_attention *args = a->args;
    (void)operands_dtype(c, "dtype", args->dtype);
    operands_size(c, "batch", args->batch, 0);
    operands_size(c, "length", args->length, 0);
    operands_size(c, "heads", args->heads, 1);
    operands_size(c, "kv_heads", args->kv_heads, 1);
    operands_size(c, "head_dim", args->head_dim, 1);
    operands_size(c, "cache_rows", args->cache_rows, 0);
    operands_size(c, "window", args->window, 0);
    if (c->status != WEFT_OK) return;
    if (args->heads % args->kv_heads != 0) {
        c->status = weft_error_set(c->err, WEFT_E_HOST,
                                   "%s on device cpu: %lld heads cannot share %lld key-value heads evenly.", c->kernel,
                                   (long long)args->heads, (long long)args->kv_heads);
    }
}

/* Looks up the number of cached positions in device memory, and checks that this call's positions fit after them. */
static void look_up_cache(attention *a, operands *c) {
    const weft_attention *args = a->args;
    const int64_t *past = args->cache_rows > 0 ? operands_need(c, args->past, "past", 1, 1, 8) : NULL;
    const int64_t places = size_times(args->batch, args->length);
    a->past = past == NULL ? 0 : *past;
    if (c->status != WEFT_OK) return;
    if (a->past < 0 || a->past > a->rows || args->length > a->rows - a->past || a->rows > INT32_MAX / 2) {
        c->status = weft_error_set(
            c->err, WEFT_E_HOST,
            "%s on device cpu: %lld positions after %lld earlier ones do not fit %lld rows of keys (at most 2^30).",
            c->kernel, (long long)args->length, (long long)a->past, (long long)a->rows);
        return;
    }
    if (args->cache_rows == 0) return;
    a->new_k = operands_may(c, args->new_k, "new_k", places, a->k_ld, a->bytes);
    a->new_v = operands_may(c, args->new_v, "new_v", places, a->k_ld, a->bytes);
}

weft_status attention_look_up(attention *a, operands *c, bool backward) {
    const weft_attention *args = a->args;
    int64_t queries = 0, keys = 0;
    if (c->status != WEFT_OK) return c->status;
    check_attention_shape(c, a);
    if (c->status != WEFT_OK) return c->status;
    look_up_cache(a, c);
    if (c->status != WEFT_OK) return c->status;
    queries = size_times(args->batch, args->length);
    keys = size_times(args->batch, a->rows);
    a->q = operands_need(c, args->q, "q", queries, a->q_ld, a->bytes);
    a->k = operands_need(c, args->k, "k", keys, a->k_ld, a->bytes);
    a->v = operands_need(c, args->v, "v", keys, a->k_ld, a->bytes);
    a->starts = operands_need(c, args->starts, "starts", queries, 1, 4);
    a->o = operands_need(c, args->o, "o", queries, a->q_ld, a->bytes);
    a->out = a->o;
    if (!backward) {
        a->lse = operands_may(c, args->lse, "lse", queries, args->heads, 4);
        return c->status;
    }
    a->lse = operands_need(c, args->lse, "lse", queries, args->heads, 4);
    a->d_out = operands_need(c, args->d_o, "d_o", queries, a->q_ld, a->bytes);
    a->dq = operands_may(c, args->dq, "dq", queries, a->q_ld, a->bytes);
    a->dk = operands_may(c, args->dk, "dk", keys, a->k_ld, a->bytes);
    a->dv = operands_may(c, args->dv, "dv", keys, a->k_ld, a->bytes);
    return c->status;
}

/* Returns the first position that the query at `place` sees; its document starts at `start`. */
static int32_t first_seen(const attention *a, int64_t place, int32_t start) {
    const int64_t window = a->args->window;
    const int64_t first = window > 0 ? size_max(0, place - window + 1) : 0;
    return (int32_t)size_max(first, start);
}

void attention_queries(const attention *a, query_block *b, int64_t batch, int64_t head, int64_t from) {
    const int32_t *starts = a->starts + batch * a->args->length + from;
    int64_t i = 0;
    b->batch = batch;
    b->head = head;
    b->from = from;
    b->n = size_min(CPU_BLOCK, a->args->length - from);
    b->low = INT32_MAX;
    b->high = a->past + from + b->n;
    for (i = 0; i < CPU_BLOCK; i++) {
        const bool there = i < b->n;
        b->first[i] = there ? first_seen(a, a->past + from + i, starts[i]) : INT32_MAX;
        b->last[i] = there ? (int32_t)(a->past + from + i) : -1;
        b->low = size_min(b->low, b->first[i]);
    }
}

cpu_scores attention_scores(query_block *b, float *s, int64_t key, int64_t keys) {
    cpu_scores p = {.s = s, .keys = keys, .first = b->near_first, .last = b->near_last};
    int64_t i = 0;
    for (i = 0; i < CPU_BLOCK; i++) {
        b->near_first[i] = b->first[i] - (int32_t)key;
        b->near_last[i] = b->last[i] - (int32_t)key;
        if (b->near_first[i] > 0 || b->near_last[i] < keys - 1) p.masked = 1;
    }
    return p;
}

void attention_pack(const attention *a, float *out, const void *from, int64_t ld, int64_t rows, float factor) {
    const size_t bytes = (size_t)(a->args->head_dim * a->bytes), room = (size_t)a->inner_ld * sizeof *out;
    int64_t i = 0;
    if (!a->pairs) {
        a->cells->pack(out, from, ld, rows, a->args->head_dim, factor);
        return;
    }
    for (i = 0; i < rows; i++, out += a->inner_ld) {
        memcpy(out, cpu_from(from, i * ld, a->bytes), bytes);
        memset((char *)out + bytes, 0, room - bytes);
    }
}

void attention_enter(const attention *a) {
    if (a->pairs && a->device->panels_bf16->enter != NULL) a->device->panels_bf16->enter();
}

void attention_leave(const attention *a) {
    if (a->pairs && a->device->panels_bf16->leave != NULL) a->device->panels_bf16->leave();
}

void attention_turn(const attention *a, float *out, float *packed, const void *from, int64_t ld, int64_t rows,
                    float factor) {
    attention_pack(a, packed, from, ld, rows, factor);
    a->device->loops->transpose(out, packed, rows, a->inner);
}

void attention_scale(const attention *a, float *s, int64_t keys) {
    if (a->pairs) a->device->loops->scale(s, keys * CPU_BLOCK, (float)a->args->scale);
}

void attention_cap(const attention *a, float *s, float *slope, int64_t keys) {
    if (a->args->cap > 0) a->device->loops->cap(s, slope, keys * CPU_BLOCK, (float)a->args->cap);
}

void attention_fetch(const attention *a, const void *from, int64_t at, int64_t rows, int64_t ld) {
    const int64_t bytes = a->args->head_dim * a->bytes;
    int64_t i = 0, j = 0;
    for (i = 0; i < rows; i++) {
        const char *row = cpu_from(from, at + i * ld, a->bytes);
        for (j = 0; j < bytes; j += 64) __builtin_prefetch(row + j, 0, 2);
    }
}

/* Returns rows [i, i + CPU_WIDTH) of p, limited to its rows. */
static cpu_small band_of_rows(const cpu_small *p, int64_t i) {
    cpu_small rows = *p;
    rows.m = size_min(CPU_WIDTH, p->m - i);
    rows.a += i * p->a_row;
    rows.c += i * p->ldc;
    return rows;
}

void attention_by_keys(const attention *a, const cpu_small *p, int64_t sees) {
    int64_t key = 0;
    if (sees + 1 >= p->m) {
        a->small(p);
        return;
    }
    for (key = 0; key < p->m; key += CPU_WIDTH) {
        const int64_t query = size_max(0, key - sees) / CPU_WIDTH * CPU_WIDTH; /* columns in complete vectors */
        cpu_small rows = band_of_rows(p, key);
        rows.b += query;
        rows.c += query;
        rows.n -= query;
        a->small(&rows);
    }
}

void attention_over_queries(const cpu_loops *loops, const cpu_small *p, int64_t sees) {
    int64_t key = 0;
    if (sees + 1 >= p->m) {
        loops->small(p);
        return;
    }
    for (key = 0; key < p->m; key += CPU_WIDTH) {
        const int64_t query = size_min(p->k, size_max(0, key - sees));
        cpu_small rows = band_of_rows(p, key);
        rows.a += query * p->a_step;
        rows.b += query * p->ldb;
        rows.k -= query;
        loops->small(&rows);
    }
}

void attention_over_keys(const cpu_loops *loops, const cpu_small *p, int64_t sees) {
    int64_t query = 0;
    if (sees + 1 >= p->k) {
        loops->small(p);
        return;
    }
    for (query = 0; query < p->m; query += CPU_WIDTH) {
        cpu_small rows = band_of_rows(p, query);
        rows.k = size_min(p->k, size_max(0, sees + query + rows.m));
        loops->small(&rows);
    }
}
