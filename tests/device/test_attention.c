/* Attention and its backward against plain loops in fp64, in fp32, bf16 and fp16 by the loop index. With
 * attention=cudnn among the keys, cuDNN computes the forward without a cache. It supports only bf16 and some head
 * sizes: the rest must be rejected. A CUDA device of compute capability 9.0 rounds factors to 16 bits for some
 * sizes. */
#include "device/fixture.h"

typedef struct attention_case {
    int64_t batch, length, heads, kv_heads, head_dim, past, cache_rows;
    int64_t document; /* positions of a document within a sequence; the last one is shorter. 0: one document */
    const float *q, *k, *v, *d_out, *o, *lse;
    const int32_t *starts;
    int backward;
    int want_dq, want_dkv;
    int32_t dtype;
    int64_t window;
    double cap;
} attention_case;

static attention_case shape(int64_t batch, int64_t length, int64_t heads, int64_t kv_heads, int64_t head_dim,
                            int64_t past, int64_t cache_rows, int64_t document) {
    const attention_case t = {.batch = batch,
                              .length = length,
                              .heads = heads,
                              .kv_heads = kv_heads,
                              .head_dim = head_dim,
                              .past = past,
                              .cache_rows = cache_rows,
                              .document = document,
                              .dtype = WEFT_F32};
    return t;
}

static int64_t rows_of(const attention_case *t) {
    return t->cache_rows > 0 ? t->cache_rows : t->length;
}
static int64_t queries_of(const attention_case *t) {
    return t->batch * t->length * t->heads * t->head_dim;
}
static int64_t keys_of(const attention_case *t) {
    return t->batch * rows_of(t) * t->kv_heads * t->head_dim;
}
static int64_t lse_of(const attention_case *t) {
    return t->batch * t->length * t->heads;
}

static bool by_cudnn(const attention_case *t) {
    const char *keys = getenv("WEFT_TEST_KEYS");
    return t->cache_rows == 0 && keys != NULL && strstr(keys, "attention=cudnn") != NULL;
}
static bool is_refused(const attention_case *t) {
    return by_cudnn(t) && (t->dtype != WEFT_BF16 || t->head_dim % 8 != 0);
}
static bool rounds_factors(const attention_case *t) {
    weft_device_info info = {.struct_size = sizeof info};
    table->info(devices[0], &info);
    return strstr(info.backend, "rounded attention") != NULL && t->dtype != WEFT_F32 && t->cache_rows == 0 &&
           t->cap == 0 && (t->head_dim == 64 || t->head_dim == 128);
}
/* Operands of kernels that round factors are aligned to 16 bytes. */
static weft_ref put_operand(run *r, const attention_case *t, const float *data, int64_t n) {
    return by_cudnn(t) || rounds_factors(t) ? put_matrix(r, data, n, t->dtype) : put_cells(r, data, n, t->dtype);
}

static void attention_put(run *r, const attention_case *t, weft_attention *args) {
    const weft_attention shape = {.struct_size = sizeof *args,
                                  .batch = t->batch,
                                  .length = t->length,
                                  .heads = t->heads,
                                  .kv_heads = t->kv_heads,
                                  .head_dim = t->head_dim,
                                  .cache_rows = t->cache_rows,
                                  .scale = 1 / sqrt((double)t->head_dim),
                                  .dtype = t->dtype,
                                  .window = t->window,
                                  .cap = t->cap};
    *args = shape;
    args->q = put_operand(r, t, t->q, queries_of(t));
    args->k = put_operand(r, t, t->k, keys_of(t));
    args->v = put_operand(r, t, t->v, keys_of(t));
    if (t->cache_rows > 0) args->past = put_at(r, &t->past, sizeof t->past, r->shift / 8 * 8);
    args->starts = put(r, t->starts, t->batch * t->length * 4);
    args->o = put_operand(r, t, t->backward ? t->o : NULL, queries_of(t));
    args->lse = put_floats(r, t->backward ? t->lse : NULL, lse_of(t));
    if (t->backward) {
        args->d_o = put_operand(r, t, t->d_out, queries_of(t));
        if (t->want_dq) args->dq = put_operand(r, t, NULL, queries_of(t));
        if (t->want_dkv) args->dk = put_operand(r, t, NULL, keys_of(t));
        if (t->want_dkv) args->dv = put_operand(r, t, NULL, keys_of(t));
    }
    args->workspace = put_workspace(r, t->backward ? table->attention_backward_workspace(r->device, args)
                                                   : table->attention_workspace(r->device, args));
}

/* Results: o, lse; or dq, dk, dv. */
static void attention_run(run *r, const void *data) {
    const attention_case *t = data;
    weft_attention args;
    attention_put(r, t, &args);
    if (!t->backward) {
        RUN(r, attention, &args);
        get_cells(r, args.o, queries_of(t), t->dtype);
        get_floats(r, args.lse, lse_of(t));
        return;
    }
    RUN(r, attention_backward, &args);
    if (t->want_dq) get_cells(r, args.dq, queries_of(t), t->dtype);
    if (t->want_dkv) get_cells(r, args.dk, keys_of(t), t->dtype);
    if (t->want_dkv) get_cells(r, args.dv, keys_of(t), t->dtype);
}

typedef struct oracle {
    double *o, *lse, *dq, *dk, *dv;
} oracle;

/* Returns the first position that query i of sequence b sees. */
static int64_t first_seen(const attention_case *t, int64_t b, int64_t i) {
    const int64_t start = t->starts[b * t->length + i], near = t->past + i - t->window + 1;
    return t->window > 0 && near > start ? near : start;
}

/* Computes one query of one head: the probabilities of all positions, their log-sum-exp, and the cap's slope at each
 * (one without a cap). */
static double weigh(const attention_case *t, int64_t b, int64_t i, int64_t h, double *p, double *slope) {
    const int64_t d = t->head_dim, hk = h / (t->heads / t->kv_heads), place = t->past + i;
    const float *q = t->q + ((b * t->length + i) * t->heads + h) * d;
    double max = -INFINITY, sum = 0;
    int64_t j = 0, c = 0;
    for (j = 0; j < rows_of(t); j++) p[j] = 0, slope[j] = 1;
    for (j = first_seen(t, b, i); j <= place; j++) {
        const float *k = t->k + ((b * rows_of(t) + j) * t->kv_heads + hk) * d;
        for (c = 0; c < d; c++) p[j] += (double)q[c] * (double)k[c];
        p[j] /= sqrt((double)d);
        if (t->cap > 0) slope[j] = 1 - pow(tanh(p[j] / t->cap), 2), p[j] = t->cap * tanh(p[j] / t->cap);
        max = fmax(max, p[j]);
    }
    for (j = first_seen(t, b, i); j <= place; j++) sum += p[j] = exp(p[j] - max);
    for (j = 0; j <= place; j++) p[j] /= sum;
    return max + log(sum);
}

/* p: scratch for the probabilities and the slopes. */
static void query_oracle(const attention_case *t, const oracle *w, int64_t b, int64_t i, int64_t h, double *p) {
    const int64_t d = t->head_dim, hk = h / (t->heads / t->kv_heads), at = ((b * t->length + i) * t->heads + h) * d;
    double delta = 0, *slopes = p + rows_of(t);
    int64_t j = 0, c = 0;
    w->lse[(b * t->heads + h) * t->length + i] = weigh(t, b, i, h, p, slopes);
    for (j = 0; j <= t->past + i; j++) {
        const int64_t row = ((b * rows_of(t) + j) * t->kv_heads + hk) * d;
        for (c = 0; c < d; c++) w->o[at + c] += p[j] * (double)t->v[row + c];
    }
    for (c = 0; c < d; c++) delta += (double)t->d_out[at + c] * (t->o != NULL ? (double)t->o[at + c] : w->o[at + c]);
    for (j = 0; j <= t->past + i; j++) {
        const int64_t row = ((b * rows_of(t) + j) * t->kv_heads + hk) * d;
        double slope = 0;
        for (c = 0; c < d; c++) slope += (double)t->d_out[at + c] * (double)t->v[row + c];
        slope = p[j] * (slope - delta) * slopes[j] / sqrt((double)d);
        for (c = 0; c < d; c++) w->dv[row + c] += p[j] * (double)t->d_out[at + c];
        for (c = 0; c < d; c++) w->dk[row + c] += slope * (double)t->q[at + c];
        for (c = 0; c < d; c++) w->dq[at + c] += slope * (double)t->k[row + c];
    }
}

static oracle attention_oracle(const attention_case *t) {
    const oracle w = {zeros(queries_of(t)), zeros(lse_of(t)), zeros(queries_of(t)), zeros(keys_of(t)),
                      zeros(keys_of(t))};
    double *p = zeros(2 * rows_of(t));
    int64_t b = 0, i = 0, h = 0;
    for (b = 0; b < t->batch; b++) {
        for (i = 0; i < t->length; i++) {
            for (h = 0; h < t->heads; h++) query_oracle(t, &w, b, i, h, p);
        }
    }
    free(p);
    return w;
}
static void oracle_free(oracle *w) {
    free(w->o), free(w->lse), free(w->dq), free(w->dk), free(w->dv);
}

static void attention_make(attention_case *t) {
    int32_t *starts = malloc((size_t)(t->batch * t->length) * sizeof *starts);
    int64_t b = 0, i = 0;
    for (b = 0; b < t->batch; b++) {
        for (i = 0; i < t->length; i++) {
            const int64_t place = t->past + i;
            starts[b * t->length + i] = t->document > 0 ? (int32_t)((place + b) / t->document * t->document - b) : 0;
            if (starts[b * t->length + i] < 0) starts[b * t->length + i] = 0;
        }
    }
    t->starts = starts;
    t->q = numbers_of(t->dtype, queries_of(t), 3);
    t->k = numbers_of(t->dtype, keys_of(t), 3);
    t->v = numbers_of(t->dtype, keys_of(t), 1);
    t->d_out = numbers_of(t->dtype, queries_of(t), 1);
}
static void attention_free(attention_case *t) {
    free((void *)t->starts), free((void *)t->q), free((void *)t->k), free((void *)t->v), free((void *)t->d_out);
}

static void expect_refusal(const attention_case *t, const char *name) {
    run r = {.device = devices[0]};
    weft_error err = WEFT_ERROR_INIT;
    weft_attention args;
    attention_put(&r, t, &args);
    ck_assert_msg(table->attention(r.device, NULL, &args, &err) == WEFT_E_UNSUPPORTED, "%s: %s", name, err.text);
    ck_assert_msg(strstr(err.text, t->dtype == WEFT_BF16 ? "has no plan for" : "supports only bf16") != NULL &&
                      strstr(err.text, "attention = auto") != NULL,
                  "%s: %s", name, err.text);
    end_run(&r);
}

/* Rounded probabilities have a relative error of 2^-8 (2^-11 in fp16), in total at most of the largest value, 1. */
static void expect_outputs(const attention_case *t, const char *name, const float *out, const double *want,
                           double limit) {
    const bool rounds = by_cudnn(t) || rounds_factors(t);
    const double digit = t->dtype == WEFT_F16 ? 1.0 / 2048 : 1.0 / 256;
    expect_cells(name, out, want, queries_of(t), t->dtype, rounds ? limit + digit / 20 : limit, rounds ? 1 : 0);
}
static void expect_gradients(const attention_case *t, const char *name, const float *got, const double *want,
                             int64_t n) {
    const double digit = t->dtype == WEFT_F16 ? 1.0 / 2048 : 1.0 / 256;
    expect_cells(name, got, want, n, t->dtype, rounds_factors(t) ? 1e-5 + digit / 20 : 1e-5, 0.1);
}

static void attention_check(attention_case t, int32_t dtype, const char *name) {
    const int64_t q = queries_of(&t), k = keys_of(&t);
    float *out = NULL, *back = NULL, *lone = NULL;
    oracle want;
    t.dtype = dtype;
    if (is_too_large(q * rows_of(&t))) return;
    attention_make(&t);
    if (is_refused(&t)) {
        expect_refusal(&t, name);
        attention_free(&t);
        return;
    }
    want = attention_oracle(&t);
    out = every_way(attention_run, &t, name);
    expect_outputs(&t, name, out, want.o, 3e-6);
    expect_close(name, out + q, want.lse, lse_of(&t), 1e-6);
    t.backward = t.want_dq = t.want_dkv = 1;
    t.o = out;
    t.lse = out + q;
    if (dtype != WEFT_F32) { /* gradients are computed at the rounded o */
        oracle_free(&want);
        want = attention_oracle(&t);
    }
    back = every_way(attention_run, &t, name);
    expect_gradients(&t, name, back, want.dq, q);
    expect_gradients(&t, name, back + q, want.dk, k);
    expect_gradients(&t, name, back + q + k, want.dv, k);
    t.want_dq = 0;
    lone = every_way(attention_run, &t, name);
    ck_assert_mem_eq(lone, back + q, (size_t)k * 8);
    free(out), free(back), free(lone);
    oracle_free(&want);
    attention_free(&t);
}

TESTS(attention_of_odd_shapes, n_types()) {
    /* batch, length, heads, kv_heads, head_dim, past, cache_rows, document */
    attention_check(shape(1, 1, 1, 1, 8, 0, 0, 0), dtypes[_i], "one place");
    attention_check(shape(2, 37, 3, 3, 8, 0, 0, 0), dtypes[_i], "within a block");
    attention_check(shape(1, 64, 1, 1, 48, 0, 0, 0), dtypes[_i], "one whole block");
    attention_check(shape(2, 131, 4, 2, 20, 0, 0, 0), dtypes[_i], "two heads to a key");
    attention_check(shape(1, 193, 6, 1, 64, 0, 0, 0), dtypes[_i], "six heads to a key");
    attention_check(shape(1, 65, 2, 2, 128, 0, 0, 0), dtypes[_i], "a wide head");
    attention_check(shape(1, 70, 1, 1, 131, 0, 0, 0), dtypes[_i], "a prime head");
}

/* Head sizes and lengths of real models. WEFT_TEST_POSITIONS: the length, for a GPU; the CUDA emulator is slow. */
TESTS(attention_at_real_sizes, n_types()) {
    const char *positions = getenv("WEFT_TEST_POSITIONS");
    const int64_t length = positions != NULL ? atoll(positions) : is_cpu() ? 2048 : 320;
    if (!is_full()) return;
    attention_check(shape(1, length, 2, 1, 64, 0, 0, 0), dtypes[_i], "heads of 64 at a real length");
    attention_check(shape(1, length, 2, 1, 128, 0, 0, 0), dtypes[_i], "heads of 128 at a real length");
}

/* A device may have tiles for some of these sizes and pad the others. */
TESTS(attention_of_all_sizes_of_heads, n_types()) {
    static const int64_t sizes[] = {1, 33, 64, 72, 80, 90, 96, 100, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "heads of %lld", (long long)sizes[i]);
        attention_check(shape(1, 67, 2, 1, sizes[i], 0, 0, 40), dtypes[_i], name);
        attention_check(shape(1, 1, 2, 1, sizes[i], 70, 75, 0), dtypes[_i], name);
    }
}

TESTS(attention_keeps_documents_apart, n_types()) {
    attention_check(shape(2, 150, 2, 1, 16, 0, 0, 7), dtypes[_i], "many documents");
    attention_check(shape(1, 300, 2, 2, 12, 0, 0, 140), dtypes[_i], "documents of several blocks");
    attention_check(shape(1, 80, 2, 2, 16, 0, 0, 1), dtypes[_i], "documents of one place");
}

TESTS(attention_over_a_cache, n_types()) {
    attention_check(shape(1, 1, 4, 2, 16, 0, 40, 0), dtypes[_i], "first place of a cache");
    attention_check(shape(2, 1, 4, 4, 48, 100, 128, 0), dtypes[_i], "one place after a hundred");
    attention_check(shape(1, 5, 2, 1, 8, 61, 70, 0), dtypes[_i], "five places across a block's end");
    attention_check(shape(1, 70, 2, 2, 32, 90, 160, 100), dtypes[_i], "a cache with a document's start");
    attention_check(shape(1, 330, 2, 1, 24, 70, 400, 150), dtypes[_i], "more blocks than go together after a cache");
    attention_check(shape(1, 40, 2, 1, 16, 93, 140, 0), dtypes[_i],
                    "a block of keys that a place sees but for the last");
}

/* Same with a window, a soft cap, or both. */
static void forms_check(attention_case t, int32_t dtype, int64_t window, double cap, const char *name) {
    t.window = window;
    t.cap = cap;
    attention_check(t, dtype, name);
}

TESTS(attention_within_a_window, n_types()) {
    forms_check(shape(1, 1, 1, 1, 8, 0, 0, 0), dtypes[_i], 1, 0, "a window of one place");
    forms_check(shape(2, 90, 2, 1, 8, 0, 0, 0), dtypes[_i], 1, 0, "each place sees itself");
    forms_check(shape(2, 131, 4, 2, 20, 0, 0, 0), dtypes[_i], 10, 0, "a window within a block");
    forms_check(shape(1, 330, 2, 2, 16, 0, 0, 0), dtypes[_i], 64, 0, "a window of a block");
    forms_check(shape(1, 700, 2, 1, 12, 0, 0, 0), dtypes[_i], 130, 0, "a window of blocks");
    forms_check(shape(1, 100, 2, 1, 12, 0, 0, 0), dtypes[_i], 100, 0, "a window of all");
    forms_check(shape(1, 300, 3, 1, 24, 0, 0, 140), dtypes[_i], 70, 0, "documents and a window");
    forms_check(shape(1, 70, 2, 2, 32, 90, 160, 100), dtypes[_i], 33, 0, "a window over a cache");
    forms_check(shape(2, 1, 4, 2, 48, 100, 128, 0), dtypes[_i], 20, 0, "one place, a window over a cache");
}

TESTS(attention_with_a_soft_cap, n_types()) {
    forms_check(shape(1, 1, 1, 1, 8, 0, 0, 0), dtypes[_i], 0, 50, "one place, capped");
    forms_check(shape(2, 131, 4, 2, 20, 0, 0, 0), dtypes[_i], 0, 2, "two heads to a key, capped");
    forms_check(shape(1, 193, 6, 1, 64, 0, 0, 70), dtypes[_i], 0, 5, "documents, capped");
    forms_check(shape(1, 330, 2, 1, 24, 0, 0, 0), dtypes[_i], 100, 1, "a window, capped");
    forms_check(shape(1, 5, 2, 1, 8, 61, 70, 0), dtypes[_i], 0, 3, "a cache, capped");
}

/* A window over the complete sequence has the same bits as no window. */
TESTS(attention_with_a_window_of_all_has_the_bits_of_none, n_types()) {
    attention_case t = shape(2, 150, 2, 1, 16, 0, 0, 40);
    float *none = NULL, *all = NULL;
    t.dtype = dtypes[_i];
    if (is_refused(&t)) return;
    attention_make(&t);
    none = every_way(attention_run, &t, "no window");
    t.window = (int64_t)1 << 40;
    all = every_way(attention_run, &t, "a window of more than all");
    ck_assert_mem_eq(none, all, (size_t)(queries_of(&t) + lse_of(&t)) * 4);
    free(none), free(all);
    attention_free(&t);
}

/* Blocks of keys before every window are not read: their contents have no effect, not even times zero. */
TESTS(attention_does_not_read_blocks_before_the_window, n_types()) {
    attention_case t = shape(1, 300, 2, 1, 16, 0, 0, 0);
    float *before = NULL, *after = NULL;
    t.dtype = dtypes[_i];
    t.window = 40;
    if (by_cudnn(&t)) return; /* it multiplies them by zero */
    attention_make(&t);
    before = every_way(attention_run, &t, "a window");
    for (int64_t i = 0; i < 64 * 16; i++) ((float *)t.k)[i] = ((float *)t.v)[i] = NAN; /* the first block */
    after = every_way(attention_run, &t, "a window behind NaN");
    for (int64_t i = 0; i < queries_of(&t); i++) {
        const int64_t place = i / 32;
        HOLDS(place < 128 ? place >= 104 || isnan(after[i]) : after[i] == before[i]);
    }
    free(before), free(after);
    attention_free(&t);
}

/* Keys outside [starts[t], t] have no effect. */
TESTS(attention_ignores_what_no_place_sees, n_types()) {
    attention_case t = shape(2, 90, 2, 2, 16, 0, 128, 30);
    float *before = NULL, *after = NULL;
    t.dtype = dtypes[_i];
    attention_make(&t);
    before = every_way(attention_run, &t, "attention");
    for (int64_t b = 0; b < 2; b++) {
        for (int64_t i = 90 * 32; i < 128 * 32; i++) {
            ((float *)t.k)[b * 128 * 32 + i] = NAN;
            ((float *)t.v)[b * 128 * 32 + i] = NAN;
        }
    }
    after = every_way(attention_run, &t, "attention");
    ck_assert_mem_eq(before, after, (size_t)(queries_of(&t) + lse_of(&t)) * 4);
    free(before), free(after);
    attention_free(&t);
}

/* A position that sees no key, not even its own, has zero output and no gradient. */
TESTS(attention_of_a_place_that_sees_nothing, n_types()) {
    attention_case t = shape(1, 70, 1, 1, 16, 0, 0, 0);
    float *out = NULL, *back = NULL;
    t.dtype = dtypes[_i];
    if (is_refused(&t)) return;
    attention_make(&t);
    ((int32_t *)t.starts)[5] = 6;
    ((int32_t *)t.starts)[66] = 1000;
    out = every_way(attention_run, &t, "nothing seen");
    t.backward = t.want_dq = t.want_dkv = 1;
    t.o = out;
    t.lse = out + queries_of(&t);
    back = every_way(attention_run, &t, "nothing seen, backward");
    for (int64_t i = 0; i < 16; i++) {
        HOLDS(out[5 * 16 + i] == 0 && out[66 * 16 + i] == 0 && out[67 * 16 + i] != 0);
        HOLDS(back[5 * 16 + i] == 0 && back[66 * 16 + i] == 0 && back[67 * 16 + i] != 0);
    }
    for (int64_t i = 0; i < 3 * 70 * 16; i++) HOLDS(isfinite(back[i]));
    free(out), free(back);
    attention_free(&t);
}

TESTS(attention_of_a_row_that_sees_nothing, n_types()) {
    attention_case t = shape(3, 70, 2, 1, 16, 0, 0, 0);
    const int64_t q = queries_of(&t), k = keys_of(&t);
    float *out = NULL, *back = NULL;
    t.dtype = dtypes[_i];
    if (is_refused(&t)) return;
    attention_make(&t);
    for (int64_t i = 70; i < 140; i++) ((int32_t *)t.starts)[i] = INT32_MAX;
    out = every_way(attention_run, &t, "a row sees nothing");
    t.backward = t.want_dq = t.want_dkv = 1;
    t.o = out;
    t.lse = out + q;
    back = every_way(attention_run, &t, "a row sees nothing, backward");
    for (int64_t i = 0; i < q; i++) HOLDS((out[i] == 0) == (i / (q / 3) == 1));
    for (int64_t i = 0; i < 140; i++) HOLDS(out[q + 140 + i] == -INFINITY);
    for (int64_t i = q / 3; i < q / 3 * 2; i++) HOLDS(back[i] == 0);
    for (int64_t i = k / 3; i < k / 3 * 2; i++) HOLDS(back[q + i] == 0 && back[q + k + i] == 0);
    for (int64_t i = 0; i < q + 2 * k; i++) HOLDS(isfinite(back[i]));
    free(out), free(back);
    attention_free(&t);
}

TESTS(attention_of_large_scores_stays_finite, n_types()) {
    attention_case t = shape(1, 100, 2, 2, 16, 0, 0, 0);
    float *out = NULL;
    oracle want;
    t.dtype = dtypes[_i];
    if (is_refused(&t)) return;
    attention_make(&t);
    for (int64_t i = 0; i < queries_of(&t); i++) ((float *)t.q)[i] *= 128;
    want = attention_oracle(&t);
    out = every_way(attention_run, &t, "large scores");
    expect_outputs(&t, "large scores", out, want.o, 1e-3);
    free(out);
    oracle_free(&want);
    attention_free(&t);
}

TESTS(attention_hands_nan_on, n_types()) {
    attention_case t = shape(1, 70, 1, 1, 16, 0, 0, 0);
    float *out = NULL;
    t.dtype = dtypes[_i];
    if (is_refused(&t)) return;
    attention_make(&t);
    ((float *)t.k)[66 * 16 + 3] = NAN;
    out = every_way(attention_run, &t, "nan");
    HOLDS(isfinite(out[65 * 16]));
    HOLDS(isnan(out[66 * 16]) && isnan(out[69 * 16]));
    free(out);
    attention_free(&t);
}

/* A cache with `past` filled positions, NaN in the rest, and the numbers that follow. */
typedef struct cache_case {
    attention_case full; /* expected contents after the call */
    int64_t past;        /* argument of the call */
    float *k, *v, *new_k, *new_v;
} cache_case;

static void cache_make(cache_case *t, attention_case full, int32_t dtype) {
    const int64_t row = full.kv_heads * full.head_dim;
    full.dtype = dtype;
    attention_make(&full);
    t->full = full;
    t->past = full.past;
    t->k = numbers(keys_of(&full), NAN), t->v = numbers(keys_of(&full), NAN);
    t->new_k = numbers(full.batch * full.length * row, 0), t->new_v = numbers(full.batch * full.length * row, 0);
    for (int64_t b = 0; b < full.batch; b++) {
        const int64_t old = b * full.cache_rows * row, new = old + full.past *row, at = b *full.length *row;
        memcpy(t->k + old, full.k + old, (size_t)(full.past * row) * 4);
        memcpy(t->v + old, full.v + old, (size_t)(full.past * row) * 4);
        memcpy(t->new_k + at, full.k + new, (size_t)(full.length * row) * 4);
        memcpy(t->new_v + at, full.v + new, (size_t)(full.length * row) * 4);
    }
}
static void cache_free(cache_case *t) {
    free(t->k), free(t->v), free(t->new_k), free(t->new_v);
    attention_free(&t->full);
}

/* Results: o, lse, and the filled positions of both caches. */
static void cache_run(run *r, const void *data) {
    const cache_case *t = data;
    const int64_t row = t->full.kv_heads * t->full.head_dim, cell = weft_dtype_bytes(t->full.dtype);
    attention_case before = t->full;
    weft_attention args;
    before.k = t->k, before.v = t->v, before.past = t->past;
    attention_put(r, &before, &args);
    if (t->new_k != NULL) {
        args.new_k = put_cells(r, t->new_k, t->full.batch * t->full.length * row, t->full.dtype);
        args.new_v = put_cells(r, t->new_v, t->full.batch * t->full.length * row, t->full.dtype);
    }
    RUN(r, attention, &args);
    get_cells(r, args.o, queries_of(&t->full), t->full.dtype);
    get_floats(r, args.lse, lse_of(&t->full));
    for (int64_t b = 0; b < t->full.batch; b++) {
        weft_ref k = args.k, v = args.v;
        k.offset += b * t->full.cache_rows * row * cell, v.offset += b * t->full.cache_rows * row * cell;
        get_cells(r, k, (t->full.past + t->full.length) * row, t->full.dtype);
        get_cells(r, v, (t->full.past + t->full.length) * row, t->full.dtype);
    }
}

static void cache_check(attention_case full, int32_t dtype, const char *name) {
    const int64_t filled = 2 * full.batch * (full.past + full.length) * full.kv_heads * full.head_dim;
    cache_case t;
    float *now = NULL, *there = NULL;
    cache_make(&t, full, dtype);
    now = every_way(cache_run, &t, name);
    for (int64_t i = 0; i < filled; i++) HOLDS(isfinite(now[queries_of(&full) + lse_of(&full) + i]));
    free(t.k), free(t.v), free(t.new_k), free(t.new_v);
    t.k = (float *)t.full.k, t.v = (float *)t.full.v, t.new_k = t.new_v = NULL;
    there = every_way(cache_run, &t, name);
    ck_assert_mem_eq(now, there, (size_t)(queries_of(&full) + lse_of(&full) + filled) * 4);
    t.k = t.v = NULL;
    free(now), free(there);
    cache_free(&t);
}

TESTS(attention_puts_new_keys_into_a_cache, n_types()) {
    cache_check(shape(1, 1, 2, 1, 16, 0, 4, 0), dtypes[_i], "an empty cache");
    cache_check(shape(3, 1, 4, 2, 10, 9, 12, 0), dtypes[_i], "one place of each row");
    cache_check(shape(2, 6, 2, 2, 24, 61, 67, 0), dtypes[_i], "up to the cache's end");
    cache_check(shape(2, 5, 3, 1, 7, 0, 9, 2), dtypes[_i], "odd heads");
}

/* If only a kernel knows the number of filled positions, it accesses nothing outside the cache. */
TESTS(attention_over_a_cache_without_room_is_nan, n_types()) {
    static const int64_t pasts[] = {-1, 3, 1000, INT64_MAX, INT64_MIN};
    if (is_seen_by_the_host()) return;
    for (int64_t length = 1; length <= 2; length++) {
        for (size_t i = 0; i < sizeof pasts / sizeof *pasts; i++) {
            cache_case t;
            float *out = NULL, *back = NULL;
            cache_make(&t, shape(1, length, 2, 1, 16, 2, 4, 0), dtypes[_i]);
            t.past = length == 1 && pasts[i] == 3 ? 4 : pasts[i];
            out = every_way(cache_run, &t, "no room");
            for (int64_t j = 0; j < queries_of(&t.full) + lse_of(&t.full); j++) HOLDS(isnan(out[j]));
            t.full.backward = t.full.want_dq = t.full.want_dkv = 1;
            t.full.past = t.past;
            t.full.o = out, t.full.lse = out;
            back = every_way(attention_run, &t.full, "no room, backward");
            for (int64_t j = 0; j < queries_of(&t.full) + 2 * keys_of(&t.full); j++) HOLDS(isnan(back[j]));
            free(out), free(back);
            cache_free(&t);
        }
    }
}

TESTS(attention_refuses_what_does_not_fit, n_types()) {
    attention_case t = shape(1, 6, 2, 1, 8, 0, 0, 0);
    run r = {.device = devices[0], .shift = 8};
    const int64_t cell = weft_dtype_bytes(dtypes[_i]);
    weft_attention args;
    t.dtype = dtypes[_i];
    attention_make(&t);
    attention_put(&r, &t, &args);
    REFUSES(&r, attention, &args, REF(args, q, cell), REF(args, k, cell), REF(args, v, cell), REF(args, starts, 4),
            REF(args, o, cell), OPTIONAL(args, lse, 4));
    if (args.workspace.buffer != NULL) REFUSES(&r, attention, &args, WORKSPACE_REF(args));
    args.cache_rows = t.length;
    REJECTS(&r, attention, &args, WEFT_E_HOST, "operand past");
    args.past = put_at(&r, &(int64_t){1}, 8, 8);
    if (is_seen_by_the_host()) {
        REJECTS(&r, attention, &args, WEFT_E_HOST, "after 1 earlier ones do not fit");
    }
    args.cache_rows = 0;
    args.kv_heads = 3;
    REJECTS(&r, attention, &args, WEFT_E_HOST, "");
    args.kv_heads = 1;
    args.batch = (int64_t)1 << 35, args.length = (int64_t)1 << 29; /* together 2^64 positions */
    REJECTS(&r, attention, &args, WEFT_E_HOST, "operand q");
    args.batch = 1, args.length = 6;
    args.heads = (int64_t)1 << 40, args.head_dim = (int64_t)1 << 24;
    REJECTS(&r, attention, &args, WEFT_E_HOST, "operand q");
    args.heads = 2, args.head_dim = 8;
    args.window = -1;
    REJECTS(&r, attention, &args, WEFT_E_HOST, "window is -1");
    args.window = 0;
    args.dtype = WEFT_F64;
    REJECTS(&r, attention, &args, WEFT_E_UNSUPPORTED, "");
    end_run(&r);
    t.backward = t.want_dq = t.want_dkv = 1;
    t.o = t.d_out;
    t.lse = t.d_out;
    attention_put(&r, &t, &args);
    REFUSES(&r, attention_backward, &args, REF(args, o, cell), REF(args, lse, 4), REF(args, d_o, cell),
            OPTIONAL(args, dq, cell), OPTIONAL(args, dk, cell), OPTIONAL(args, dv, cell), WORKSPACE_REF(args));
    end_run(&r);
    attention_free(&t);
}

TESTS(attention_of_tiles_that_take_turns, n_types()) {
    attention_check(shape(1, 210, 1, 1, 64, 0, 0, 0), dtypes[_i], "tiles that take turns");
}

int main(void) {
    return run_device_suite("device.attention");
}
