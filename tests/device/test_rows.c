/* Kernels along rows, norms and sums over rows, against plain loops in fp64, on activations in fp32 and bf16 by the
 * loop index. */
#include "device/fixture.h"

/* ---- norms ---- */

typedef struct norm_case {
    int64_t rows, width;
    int32_t form, from_one, dtype;
    const float *x, *residual, *gain, *bias, *dy, *rstd, *mean, *dx, *dgain, *dbias;
    bool with_statistics, adds, with_residual, sum_on_x;
} norm_case;

static weft_norm norm_args(run *r, const norm_case *t) {
    weft_norm args = {.struct_size = sizeof args, .rows = t->rows, .width = t->width, .eps = 1e-5};
    args.form = t->form;
    args.gain_from_one = t->from_one;
    args.dtype = t->dtype;
    args.x = put_cells(r, t->x, t->rows * t->width, t->dtype);
    args.gain = put_floats(r, t->gain, t->width);
    return args;
}

/* Results: y, rstd, for LayerNorm the mean, then the residual sum. */
static void norm_run(run *r, const void *data) {
    const norm_case *t = data;
    const int64_t n = t->rows * t->width;
    weft_norm args = norm_args(r, t);
    if (t->form == WEFT_NORM_LAYER) args.bias = put_floats(r, t->bias, t->width);
    args.y = put_cells(r, NULL, n, t->dtype);
    args.rstd = put_floats(r, NULL, t->rows);
    if (t->form == WEFT_NORM_LAYER) args.mean = put_floats(r, NULL, t->rows);
    if (t->with_residual) args.residual = put_cells(r, t->residual, n, t->dtype);
    if (t->with_residual) args.sum = t->sum_on_x ? args.x : put_cells(r, NULL, n, t->dtype);
    RUN(r, norm, &args);
    get_cells(r, args.y, n, t->dtype);
    get_floats(r, args.rstd, t->rows);
    if (t->form == WEFT_NORM_LAYER) get_floats(r, args.mean, t->rows);
    if (t->with_residual) get_cells(r, args.sum, n, t->dtype);
}

static weft_norm norm_backward_args(run *r, const norm_case *t) {
    weft_norm args = norm_args(r, t);
    if (t->with_statistics) args.rstd = put_floats(r, t->rstd, t->rows);
    if (t->with_statistics && t->form == WEFT_NORM_LAYER) args.mean = put_floats(r, t->mean, t->rows);
    args.dy = put_cells(r, t->dy, t->rows * t->width, t->dtype);
    args.dx = put_cells(r, t->adds ? t->dx : NULL, t->rows * t->width, t->dtype);
    args.dgain = put_floats(r, t->adds ? t->dgain : NULL, t->width);
    if (t->form == WEFT_NORM_LAYER) args.dbias = put_floats(r, t->adds ? t->dbias : NULL, t->width);
    args.accumulate_dx = args.accumulate_dgain = args.accumulate_dbias = t->adds;
    args.workspace = put_workspace(r, table->norm_backward_workspace(r->device, &args));
    return args;
}

/* Results: dx, dgain, dbias. */
static void norm_backward_run(run *r, const void *data) {
    const norm_case *t = data;
    weft_norm args = norm_backward_args(r, t);
    RUN(r, norm_backward, &args);
    get_cells(r, args.dx, t->rows * t->width, t->dtype);
    get_floats(r, args.dgain, t->width);
    if (t->form == WEFT_NORM_LAYER) get_floats(r, args.dbias, t->width);
}

typedef struct norm_wanted {
    double *y, *rstd, *mean, *dx, *dgain, *dbias;
} norm_wanted;

static void norm_oracle_row(const norm_case *t, const norm_wanted *w, int64_t r) {
    const float *x = t->x + r * t->width, *dy = t->dy + r * t->width;
    const bool layer = t->form == WEFT_NORM_LAYER;
    double square = 0, level = 0, along = 0;
    int64_t i = 0;
    for (i = 0; layer && i < t->width; i++) w->mean[r] += (double)x[i] / (double)t->width;
    for (i = 0; i < t->width; i++) square += pow((double)x[i] - w->mean[r], 2) / (double)t->width;
    w->rstd[r] = 1 / sqrt(square + 1e-5);
    for (i = 0; i < t->width; i++) {
        const double g = (double)t->gain[i] + (t->from_one ? 1 : 0), h = ((double)x[i] - w->mean[r]) * w->rstd[r];
        w->y[r * t->width + i] = h * g + (layer ? (double)t->bias[i] : 0);
        w->dgain[i] += (double)dy[i] * h;
        w->dbias[i] += (double)dy[i];
        level += layer ? (double)dy[i] * g / (double)t->width : 0;
        along += (double)dy[i] * g * h / (double)t->width;
    }
    for (i = 0; i < t->width; i++) {
        const double g = (double)t->gain[i] + (t->from_one ? 1 : 0), h = ((double)x[i] - w->mean[r]) * w->rstd[r];
        w->dx[r * t->width + i] = w->rstd[r] * ((double)dy[i] * g - level - h * along);
    }
}

static norm_wanted norm_oracle(const norm_case *t) {
    const norm_wanted w = {zeros(t->rows * t->width), zeros(t->rows),  zeros(t->rows),
                           zeros(t->rows * t->width), zeros(t->width), zeros(t->width)};
    for (int64_t r = 0; r < t->rows; r++) norm_oracle_row(t, &w, r);
    return w;
}
static void norm_wanted_free(norm_wanted *w) {
    free(w->y), free(w->rstd), free(w->mean), free(w->dx), free(w->dgain), free(w->dbias);
}

static norm_case norm_make(int64_t rows, int64_t width, int32_t form, int32_t from_one, int32_t dtype) {
    const int64_t n = rows * width;
    norm_case t = {.rows = rows, .width = width, .form = form, .from_one = from_one, .dtype = dtype};
    t.x = numbers_of(dtype, n, 2), t.residual = numbers_of(dtype, n, 1), t.dy = numbers_of(dtype, n, 1);
    t.gain = numbers(width, 1), t.bias = numbers(width, 1);
    t.dx = numbers_of(dtype, n, 1), t.dgain = numbers(width, 1), t.dbias = numbers(width, 1);
    return t;
}
static void norm_free(norm_case *t) {
    free((void *)t->x), free((void *)t->residual), free((void *)t->dy), free((void *)t->gain), free((void *)t->bias);
    free((void *)t->dx), free((void *)t->dgain), free((void *)t->dbias);
}

/* Checks an accumulating backward against the result without accumulation. */
static void norm_check_added(norm_case *t, const float *set, norm_wanted *want) {
    const int64_t n = t->rows * t->width, width = t->width;
    float *added = NULL;
    int64_t i = 0;
    t->adds = true;
    added = every_way(norm_backward_run, t, "norm_backward, accumulating");
    for (i = 0; i < n; i++) {
        want->dx[i] += (double)t->dx[i];
        HOLDS(t->dtype != WEFT_F32 || added[i] == t->dx[i] + set[i]);
    }
    expect_cells("norm dx, accumulating", added, want->dx, n, t->dtype, 4e-6, 0.1);
    for (i = 0; i < width; i++) {
        HOLDS(added[n + i] == t->dgain[i] + set[n + i]);
        HOLDS(t->form == WEFT_NORM_RMS || added[n + width + i] == t->dbias[i] + set[n + width + i]);
    }
    free(added);
}

static void norm_check(int64_t rows, int64_t width, int32_t form, int32_t from_one, int32_t dtype) {
    const int64_t n = rows * width;
    const bool layer = form == WEFT_NORM_LAYER;
    norm_case t = norm_make(rows, width, form, from_one, dtype);
    norm_wanted want = norm_oracle(&t);
    float *out = every_way(norm_run, &t, "norm"), *set = NULL, *alone = NULL;
    expect_cells("norm y", out, want.y, n, dtype, 1e-6, layer ? 0.1 : 0);
    expect_close("norm rstd", out + n, want.rstd, rows,
                 1e-6 * fmax(1, (double)width / 2048)); /* a chain of sums is as long as the row */
    if (layer) expect_close_to("norm mean", out + n + rows, want.mean, rows, 5e-7, 0.1);
    t.rstd = out + n, t.mean = out + n + rows;
    t.with_statistics = true;
    set = every_way(norm_backward_run, &t, "norm_backward");
    expect_cells("norm dx", set, want.dx, n, dtype, 4e-6, 0.1);
    expect_close_to("norm dgain", set + n, want.dgain, width, 5e-6, 0.1);
    if (layer) expect_close_to("norm dbias", set + n + width, want.dbias, width, 5e-6, 0.1);
    t.with_statistics = false;
    alone = every_way(norm_backward_run, &t, "norm_backward without statistics");
    ck_assert_mem_eq(alone, set, (size_t)(n + width + (layer ? width : 0)) * 4);
    norm_check_added(&t, set, &want);
    free(out), free(set), free(alone);
    norm_wanted_free(&want);
    norm_free(&t);
}

/* Loop index: type, the gain's form, and the norm's form. */
TESTS(norms_of_odd_shapes, 4 * n_types()) {
    const int32_t dtype = dtypes[_i / 4], from_one = _i & 1, form = _i >> 1 & 1;
    if (form == WEFT_NORM_RMS) norm_check(1, 1, form, from_one, dtype);
    norm_check(3, 7, form, from_one, dtype);
    norm_check(17, 64, form, from_one, dtype);
    norm_check(67, 131, form, from_one, dtype);
    if (from_one && is_slow()) return;
    norm_check(1031, 48, form, from_one, dtype);
    norm_check(11, 4099, form, from_one, dtype);
    norm_check(9, 13000, form, from_one, dtype); /* sums over rows that exceed CUDA's shared memory */
    if (is_full()) norm_check(3, 65536, form, from_one, dtype);
}

/* A single element is its own mean: the output is the bias, and the gradient is zero. */
TESTS(layer_norm_of_one_element, n_types()) {
    norm_case t = norm_make(3, 1, WEFT_NORM_LAYER, 0, dtypes[_i]);
    float *out = every_way(norm_run, &t, "norm"), *back = every_way(norm_backward_run, &t, "norm_backward");
    for (int64_t r = 0; r < 3; r++) HOLDS(out[r] == rounded(t.bias[0], t.dtype) && back[r] == 0);
    free(out), free(back);
    norm_free(&t);
}

/* With a large mean, the squares of small differences keep their digits. */
TEST(layer_norm_far_from_zero) {
    norm_case t = norm_make(9, 100, WEFT_NORM_LAYER, 0, WEFT_F32);
    norm_wanted want;
    float *out = NULL;
    for (int64_t i = 0; i < 900; i++) ((float *)t.x)[i] += 1000;
    want = norm_oracle(&t);
    out = every_way(norm_run, &t, "norm");
    expect_close("norm rstd", out + 900, want.rstd, 9, 1e-5);
    expect_cells("norm y", out, want.y, 900, WEFT_F32, 3e-4, 0.1);
    free(out);
    norm_wanted_free(&want);
    norm_free(&t);
}

/* If squares overflow, the result is NaN, not a row of zeros. */
/* fp16 has no such numbers. */
TESTS(norms_of_rows_that_overflow_are_nan, 2) {
    for (int32_t form = WEFT_NORM_RMS; form <= WEFT_NORM_LAYER; form++) {
        norm_case t = norm_make(2, 20, form, 0, dtypes[_i]);
        float *out = NULL;
        for (int64_t i = 0; i < 20; i++) ((float *)t.x)[i] = i % 2 == 0 ? 0x1p100f : -0x1p100f;
        out = every_way(norm_run, &t, "norm");
        for (int64_t i = 0; i < 20; i++) HOLDS(isnan(out[i]) && isfinite(out[20 + i]));
        free(out);
        norm_free(&t);
    }
}

/* Same bits as an add and a norm of the rounded sum, for any destination of the sum. */
TESTS(a_norm_takes_the_residual_with_it, n_types()) {
    const int64_t rows = 37, width = 67, n = rows * width;
    for (int32_t form = WEFT_NORM_RMS; form <= WEFT_NORM_LAYER; form++) {
        const int64_t statistics = form == WEFT_NORM_LAYER ? 2 * rows : rows;
        norm_case t = norm_make(rows, width, form, 0, dtypes[_i]), apart = t;
        float *sum = malloc((size_t)n * sizeof *sum), *want = NULL;
        for (int64_t i = 0; i < n; i++) sum[i] = rounded(t.x[i] + t.residual[i], t.dtype);
        apart.x = sum;
        want = every_way(norm_run, &apart, "norm");
        t.with_residual = true;
        for (int way = 0; way < 2; way++) {
            float *got = NULL;
            t.sum_on_x = way == 1;
            got = every_way(norm_run, &t, "norm of a sum");
            ck_assert_mem_eq(got, want, (size_t)(n + statistics) * 4);
            ck_assert_mem_eq(got + n + statistics, sum, (size_t)n * 4);
            free(got);
        }
        free(sum), free(want);
        norm_free(&t);
    }
}

TESTS(norms_refuse_what_does_not_fit, n_types()) {
    run r = {.device = devices[0], .shift = 8};
    norm_case t = norm_make(5, 3, WEFT_NORM_LAYER, 0, dtypes[_i]);
    const int64_t cell = weft_dtype_bytes(t.dtype);
    weft_norm args;
    t.with_statistics = true, t.rstd = t.mean = t.dy;
    args = norm_backward_args(&r, &t);
    REFUSES(&r, norm_backward, &args, REF(args, x, cell), REF(args, gain, 4), REF(args, dy, cell),
            OPTIONAL(args, rstd, 4), OPTIONAL(args, mean, 4), OPTIONAL(args, dx, cell), OPTIONAL(args, dgain, 4),
            OPTIONAL(args, dbias, 4), WORKSPACE_REF(args));
    args.y = put_cells(&r, NULL, 15, t.dtype), args.bias = put_floats(&r, t.bias, 3);
    args.residual = put_cells(&r, t.x, 15, t.dtype), args.sum = put_cells(&r, NULL, 15, t.dtype);
    REFUSES(&r, norm, &args, REF(args, y, cell), REF(args, bias, 4), OPTIONAL(args, rstd, 4),
            OPTIONAL(args, residual, cell), REF(args, sum, cell));
    args.form = 2;
    REJECTS(&r, norm, &args, WEFT_E_UNSUPPORTED, "form 2");
    args.form = WEFT_NORM_LAYER, args.dtype = WEFT_F64;
    REJECTS(&r, norm, &args, WEFT_E_UNSUPPORTED, "");
    REJECTS(&r, norm_backward, &args, WEFT_E_UNSUPPORTED, "");
    end_run(&r);
    norm_free(&t);
}

/* ---- sum_rows ---- */

typedef struct sum_case {
    int64_t rows, width;
    const float *x, *out;
    int32_t dtype;
    bool adds;
} sum_case;

static weft_sum_rows sum_args(run *r, const sum_case *t) {
    weft_sum_rows args = {.struct_size = sizeof args, .rows = t->rows, .width = t->width, .dtype = t->dtype};
    args.accumulate = t->adds;
    args.x = put_cells(r, t->x, t->rows * t->width, t->dtype);
    args.out = put_floats(r, t->adds ? t->out : NULL, t->width);
    args.workspace = put_workspace(r, table->sum_rows_workspace(r->device, &args));
    return args;
}

static void sum_run(run *r, const void *data) {
    const sum_case *t = data;
    weft_sum_rows args = sum_args(r, t);
    RUN(r, sum_rows, &args);
    get_floats(r, args.out, t->width);
}

static void sum_check(int64_t rows, int64_t width, int32_t dtype) {
    sum_case t = {.rows = rows, .width = width, .dtype = dtype};
    double *want = zeros(width);
    float *set = NULL, *added = NULL;
    t.x = numbers_of(dtype, rows * width, 1), t.out = numbers(width, 1);
    for (int64_t i = 0; i < rows * width; i++) want[i % width] += (double)t.x[i];
    set = every_way(sum_run, &t, "sum_rows");
    expect_close_to("sum_rows", set, want, width, 1e-6, 0.1);
    t.adds = true;
    added = every_way(sum_run, &t, "sum_rows, accumulating");
    for (int64_t i = 0; i < width; i++) HOLDS(added[i] == t.out[i] + set[i]);
    free(want), free(set), free(added), free((void *)t.x), free((void *)t.out);
}

TESTS(sums_of_odd_shapes, n_types()) {
    sum_check(0, 5, dtypes[_i]);
    sum_check(1, 1, dtypes[_i]);
    sum_check(17, 7, dtypes[_i]);
    sum_check(70, 300, dtypes[_i]);
    sum_check(1031, 131, dtypes[_i]);
}

TESTS(sums_refuse_what_does_not_fit, n_types()) {
    run r = {.device = devices[0], .shift = 8};
    const sum_case t = {.rows = 5, .width = 3, .dtype = dtypes[_i]};
    weft_sum_rows args = sum_args(&r, &t);
    REFUSES(&r, sum_rows, &args, REF(args, x, weft_dtype_bytes(t.dtype)), REF(args, out, 4), WORKSPACE_REF(args));
    args.dtype = WEFT_F64;
    REJECTS(&r, sum_rows, &args, WEFT_E_UNSUPPORTED, "");
    end_run(&r);
}

int main(void) {
    return run_device_suite("device.rows");
}
