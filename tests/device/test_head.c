/* The fused head against plain loops in fp64, in fp32, bf16 and fp16 by the loop index. */
#include "device/fixture.h"

typedef struct head_case {
    int64_t rows, width, vocab;
    const float *x, *w, *weights, *dw, *bias, *dbias;
    const int32_t *targets;
    int grad, accumulate, want_dx, want_dw;
    int32_t dtype;
    double scale, cap;
    int has_bias;
    float seed; /* 0: no seed */
} head_case;

static weft_head head_args(const head_case *t) {
    const weft_head args = {.struct_size = sizeof args,
                            .rows = t->rows,
                            .width = t->width,
                            .vocab = t->vocab,
                            .accumulate_dw = t->accumulate,
                            .accumulate_dbias = t->accumulate,
                            .has_bias = t->has_bias,
                            .scale = t->scale,
                            .cap = t->cap,
                            .dtype = t->dtype};
    return args;
}

static void head_put(run *r, const head_case *t, weft_head *args) {
    *args = head_args(t);
    args->x = put_cells(r, t->x, t->rows * t->width, t->dtype);
    args->w = put_matrix(r, t->w, t->vocab * t->width, t->dtype);
    args->targets = put(r, t->targets, t->rows * 4);
    args->weights = put_floats(r, t->weights, t->rows);
    args->loss = put_doubles(r, NULL, 1);
    if (t->seed > 0) args->seed = put_floats(r, &t->seed, 1);
    if (t->grad && t->want_dx) args->dx = put_matrix(r, NULL, t->rows * t->width, t->dtype);
    if (t->grad && t->want_dw) args->dw = put_matrix(r, t->accumulate ? t->dw : NULL, t->vocab * t->width, WEFT_F32);
    if (t->has_bias) args->bias = put_floats(r, t->bias, t->vocab);
    if (t->has_bias && t->grad) args->dbias = put_floats(r, t->accumulate ? t->dbias : NULL, t->vocab);
    args->workspace = put_workspace(r, t->grad ? table->head_loss_grad_workspace(r->device, args)
                                               : table->head_loss_workspace(r->device, args));
}

/* Results: loss (two words), dx, dw, dbias. */
static void head_case_run(run *r, const void *data) {
    const head_case *t = data;
    weft_head args;
    head_put(r, t, &args);
    if (t->grad) {
        RUN(r, head_loss_grad, &args);
    } else {
        RUN(r, head_loss, &args);
    }
    get_bytes(r, args.loss, 8);
    if (args.dx.buffer != NULL) get_cells(r, args.dx, t->rows * t->width, t->dtype);
    if (args.dw.buffer != NULL) get_floats(r, args.dw, t->vocab * t->width);
    if (args.dbias.buffer != NULL) get_floats(r, args.dbias, t->vocab);
}

/* Computes the logits of row r after scale and cap; returns the largest. */
static double head_logits(const head_case *t, int64_t r, double *logits) {
    double max = -INFINITY;
    for (int64_t v = 0; v < t->vocab; v++) {
        logits[v] = t->has_bias ? (double)t->bias[v] : 0;
        for (int64_t i = 0; i < t->width; i++)
            logits[v] += (double)t->x[r * t->width + i] * (double)t->w[v * t->width + i];
        if (t->scale != 0) logits[v] *= t->scale;
        if (t->cap > 0) logits[v] = t->cap * tanh(logits[v] / t->cap);
        max = fmax(max, logits[v]);
    }
    return max;
}

static double head_oracle(const head_case *t, double *dx, double *dw, double *dbias) {
    const int64_t d = t->width;
    double *logits = zeros(t->vocab), loss = 0;
    int64_t r = 0, v = 0, i = 0;
    for (r = 0; r < t->rows; r++) {
        double max = 0, sum = 0;
        if (t->weights[r] == 0) continue;
        max = head_logits(t, r, logits);
        for (v = 0; v < t->vocab; v++) sum += exp(logits[v] - max);
        loss += (double)t->weights[r] * (max + log(sum) - logits[t->targets[r]]);
        for (v = 0; v < t->vocab; v++) {
            const double p = exp(logits[v] - max) / sum, along = t->cap > 0 ? logits[v] / t->cap : 0;
            double g = (double)t->weights[r] * (p - (v == t->targets[r])) * (1 - along * along);
            if (t->scale != 0) g *= t->scale;
            if (t->seed > 0) g *= (double)t->seed;
            g = t->dtype == WEFT_F32 ? g : (double)rounded((float)g, t->dtype); /* an operand of two matmuls */
            for (i = 0; i < d; i++) dx[r * d + i] += g * (double)t->w[v * d + i];
            for (i = 0; i < d; i++) dw[v * d + i] += g * (double)t->x[r * d + i];
            dbias[v] += g;
        }
    }
    free(logits);
    return loss;
}

/* idle: number of first rows without weight; every third of the others has none either. spoilt: rows of zero weight
 * contain NaN and a target outside the vocabulary, which must have no effect. */
static head_case head_make_idle(int64_t rows, int64_t width, int64_t vocab, int64_t idle, bool spoilt, int32_t dtype) {
    head_case t = {.rows = rows, .width = width, .vocab = vocab, .want_dx = 1, .want_dw = 1, .dtype = dtype};
    float *x = numbers_of(dtype, rows * width, 2), *weights = numbers(rows, 1);
    int32_t *targets = malloc((size_t)rows * sizeof *targets);
    int64_t r = 0, i = 0;
    t.w = numbers_of(dtype, vocab * width, 1);
    t.dw = numbers(vocab * width, 1);
    t.bias = numbers(vocab, 1), t.dbias = numbers(vocab, 1);
    for (r = 0; r < rows; r++) {
        targets[r] = (int32_t)((r * 7919) % vocab);
        weights[r] = r < idle || r % 3 == 1 ? 0.0f : weights[r] + 1.25f;
        if (weights[r] != 0 || !spoilt) continue;
        targets[r] = -100;
        for (i = 0; i < width; i++) x[r * width + i] = NAN;
    }
    t.x = x;
    t.weights = weights;
    t.targets = targets;
    return t;
}
static head_case head_make(int64_t rows, int64_t width, int64_t vocab, bool spoilt, int32_t dtype) {
    return head_make_idle(rows, width, vocab, 0, spoilt, dtype);
}
static void head_free(head_case *t) {
    free((void *)t->x), free((void *)t->w), free((void *)t->dw), free((void *)t->weights), free((void *)t->targets);
    free((void *)t->bias), free((void *)t->dbias);
}

/* forms: bits for scaled logits, capped logits and a bias; some combinations have a seed. */
static void head_check(int64_t rows, int64_t width, int64_t vocab, int64_t idle, int forms, int32_t dtype) {
    /* a gradient between two 16-bit numbers may round to the other one because of an fp32 error */
    const double limit = dtype == WEFT_F32 ? 1e-5 : forms == 0 ? 1e-4 : 2e-4;
    head_case t = head_make_idle(rows, width, vocab, idle, true, dtype);
    const int64_t at_dw = 2 + rows * width, at_dbias = at_dw + vocab * width;
    double *dx = zeros(rows * width), *dw = zeros(vocab * width), *dbias = zeros(vocab), want = 0;
    float *loss = NULL, *set = NULL, *added = NULL, *lone = NULL;
    t.scale = (forms & 1) != 0 ? 0.3 : 0;
    t.cap = (forms & 2) != 0 ? 1.5 : 0;
    t.has_bias = (forms & 4) != 0;
    t.seed = forms == 1 || forms == 7 ? 65536.0f / 2300 : 0;
    want = head_oracle(&t, dx, dw, dbias);
    loss = every_way(head_case_run, &t, "head_loss");
    ck_assert_double_eq_tol(double_of(loss), want, 2e-6 * fabs(want) + 1e-12);
    t.grad = 1;
    set = every_way(head_case_run, &t, "head_loss_grad");
    ck_assert_double_eq(double_of(set), double_of(loss));
    expect_cells("dx of the head", set + 2, dx, rows * width, dtype, limit, 0);
    expect_close("dw of the head", set + at_dw, dw, vocab * width, limit);
    if (t.has_bias) expect_close("dbias of the head", set + at_dbias, dbias, vocab, limit);
    for (int64_t i = 0; i < rows * width; i++) HOLDS(t.weights[i / width] != 0 || set[2 + i] == 0);
    t.accumulate = 1;
    added = every_way(head_case_run, &t, "head_loss_grad, accumulating");
    for (int64_t i = 0; i < vocab * width; i++) HOLDS(added[at_dw + i] == t.dw[i] + set[at_dw + i]);
    for (int64_t i = 0; t.has_bias && i < vocab; i++) HOLDS(added[at_dbias + i] == t.dbias[i] + set[at_dbias + i]);
    t.want_dx = t.accumulate = 0;
    lone = every_way(head_case_run, &t, "head_loss_grad without dx");
    ck_assert_mem_eq(lone + 2, set + at_dw, (size_t)(vocab * width) * 4);
    free(dx), free(dw), free(dbias), free(loss), free(set), free(added), free(lone);
    head_free(&t);
}

TESTS(head_of_odd_shapes, n_types()) {
    head_check(1, 1, 2, 0, 0, dtypes[_i]);
    head_check(7, 8, 31, 0, 0, dtypes[_i]);
    head_check(45, 20, 509, 0, 0, dtypes[_i]);
    head_check(1100, 8, 97, 0, 0, dtypes[_i]);                  /* more than one chunk on the CPU */
    head_check(1100, 8, 97, 1024, 0, dtypes[_i]);               /* the first one without any weight */
    head_check(2100, 8, 37, 2048, 0, dtypes[_i]);               /* on CUDA */
    head_check(is_cpu() ? 258 : 6, 4, 32003, 0, 0, dtypes[_i]); /* the logits limit a chunk; two chunks */
}

/* Scaled and capped logits, and a bias: the loop index selects the type and the combination. */
TESTS(head_of_other_logits, 7 * n_types()) {
    const int forms = _i % 7 + 1;
    head_check(7, 8, 31, 0, forms, dtypes[_i / 7]);
    if (forms == 7 || !is_slow()) head_check(45, 20, 1509, 0, forms, dtypes[_i / 7]);
    if (!is_slow()) head_check(1100, 8, 97, 0, forms, dtypes[_i / 7]); /* more than one chunk */
    if (!is_cpu() && (forms == 7 || is_full())) head_check(2060, 8, 37, 0, forms, dtypes[_i / 7]);
}

/* Non-finite weights of the head: a row without weight still has no gradient. */
TESTS(head_of_weights_that_are_not_finite_has_zeros_where_nothing_counts, n_types()) {
    head_case t = head_make(45, 20, 97, true, dtypes[_i]);
    ((float *)t.w)[3 * 20 + 1] = INFINITY;
    ((float *)t.w)[5 * 20 + 2] = NAN;
    t.grad = 1;
    for (int way = 0; way < WAYS; way++) {
        run r = {.device = devices[way], .shift = way_shift[way]};
        head_case_run(&r, &t);
        end_run(&r);
        for (int i = 0; i < 45 * 20; i++) HOLDS(t.weights[i / 20] != 0 || r.results[2 + i] == 0);
        HOLDS(isnan(r.results[2]));
        free(r.results);
    }
    head_free(&t);
}

TESTS(head_of_large_logits_stays_finite, n_types()) {
    head_case t = head_make(5, 16, 700, false, dtypes[_i]);
    float *x = (float *)t.x, *got = NULL;
    double *dx = zeros(5 * 16), *dw = zeros(700 * 16), *dbias = zeros(700), want = 0;
    for (int i = 0; i < 80; i++) x[i] *= 64;
    want = head_oracle(&t, dx, dw, dbias);
    t.grad = 1;
    got = every_way(head_case_run, &t, "head of large logits");
    ck_assert_double_eq_tol(double_of(got), want, 2e-6 * fabs(want));
    expect_cells("dx of large logits", got + 2, dx, 80, t.dtype, t.dtype == WEFT_F32 ? 2e-5 : 1e-3, 0);
    free(dx), free(dw), free(dbias), free(got);
    head_free(&t);
}

TESTS(head_without_any_weight_gives_zeros, n_types()) {
    head_case t = head_make(6, 4, 11, true, dtypes[_i]);
    float *weights = (float *)t.weights, *got = NULL;
    for (int i = 0; i < 6; i++) weights[i] = 0;
    t.grad = 1;
    got = every_way(head_case_run, &t, "head without weights");
    for (int i = 0; i < 2 + 24 + 44; i++) HOLDS(got[i] == 0);
    free(got);
    t.accumulate = 1;
    got = every_way(head_case_run, &t, "head without weights, accumulating");
    ck_assert_mem_eq(got + 26, t.dw, 44 * 4);
    free(got);
    head_free(&t);
}

TESTS(head_refuses_what_does_not_fit, n_types()) {
    head_case t = head_make(5, 6, 13, false, dtypes[_i]);
    const int64_t cell = weft_dtype_bytes(t.dtype);
    run r = {.device = devices[0], .shift = 8};
    weft_head args;
    t.grad = t.has_bias = 1;
    t.cap = 30;
    head_put(&r, &t, &args);
    REFUSES(&r, head_loss_grad, &args, REF(args, x, cell), REF(args, bias, 4), OPTIONAL(args, dbias, 4),
            REF(args, w, cell), REF(args, targets, 4), REF(args, weights, 4), REF(args, loss, 8),
            OPTIONAL(args, dx, cell), OPTIONAL(args, dw, 4), WORKSPACE_REF(args));
    if (is_seen_by_the_host()) {
        ((int32_t *)table->host_view(r.device, args.targets))[2] = 13;
        REJECTS(&r, head_loss, &args, WEFT_E_HOST, "targets[2] is 13");
    }
    args.dtype = WEFT_F64;
    REJECTS(&r, head_loss, &args, WEFT_E_UNSUPPORTED, "");
    end_run(&r);
    head_free(&t);
}

/* If the host cannot see targets, one outside the vocabulary makes the loss and its row's gradient NaN. */
TESTS(head_of_a_target_outside_the_vocabulary_is_nan, !is_cpu() ? n_types() : 0) {
    head_case t = head_make(5, 6, 13, false, dtypes[_i]);
    float *got = NULL;
    ((int32_t *)t.targets)[2] = 13;
    ((int32_t *)t.targets)[3] = INT32_MIN;
    t.grad = 1;
    got = every_way(head_case_run, &t, "head of a target outside");
    HOLDS(isnan(double_of(got)));
    for (int i = 0; i < 30; i++) HOLDS(isnan(got[2 + i]) == (i / 6 == 2 || i / 6 == 3));
    free(got);
    head_free(&t);
}

/* For any vocabulary size. */
TESTS(head_has_room_for_a_row_of_logits, n_types()) {
    for (int64_t vocab = 1; vocab <= (int64_t)1 << 32; vocab *= 2) {
        const head_case t = {.rows = 3, .width = 2, .vocab = vocab, .dtype = dtypes[_i]};
        const weft_head args = head_args(&t);
        ck_assert_int_ge(table->head_loss_workspace(devices[0], &args), vocab * (int64_t)sizeof(float));
        ck_assert_int_ge(table->head_loss_grad_workspace(devices[0], &args), vocab * (int64_t)sizeof(float));
    }
}

int main(void) {
    return run_device_suite("device.head");
}
