/* Kernels without dependencies between rows, against plain formulas in fp64, on activations in fp32 and bf16 by the
 * loop index. */
#include "device/fixture.h"

/* ---- rope ---- */

typedef struct rope_case {
    int64_t rows, heads, head_dim, rotary_dim;
    const float *x, *y, *table;
    const int32_t *positions;
    int inverse, accumulate, in_place;
    int32_t dtype;
} rope_case;

#define ROPE_PLACES 37

static int64_t turned_of(const rope_case *t) {
    return t->rotary_dim > 0 ? t->rotary_dim : t->head_dim;
}

static weft_rope rope_args(run *r, const rope_case *t) {
    const int64_t n = t->rows * t->heads * t->head_dim;
    weft_rope args = {.struct_size = sizeof args, .rows = t->rows, .heads = t->heads, .head_dim = t->head_dim};
    args.table_rows = ROPE_PLACES;
    args.rotary_dim = t->rotary_dim;
    args.inverse = t->inverse;
    args.accumulate = t->accumulate;
    args.dtype = t->dtype;
    args.x = put_cells(r, t->x, n, t->dtype);
    args.y = t->in_place ? args.x : put_cells(r, t->accumulate ? t->y : NULL, n, t->dtype);
    args.positions = put(r, t->positions, t->rows * 4);
    args.table = put_floats(r, t->table, ROPE_PLACES * turned_of(t));
    return args;
}

static void rope_run(run *r, const void *data) {
    const rope_case *t = data;
    weft_rope args = rope_args(r, t);
    RUN(r, rope, &args);
    get_cells(r, args.y, t->rows * t->heads * t->head_dim, t->dtype);
}

static double *rope_oracle(const rope_case *t) {
    const int64_t d = t->head_dim, turned = turned_of(t), half = turned / 2;
    double *y = zeros(t->rows * t->heads * d);
    int64_t r = 0, h = 0, i = 0;
    for (r = 0; r < t->rows; r++) {
        for (h = 0; h < t->heads; h++) {
            const int64_t at = (r * t->heads + h) * d;
            for (i = 0; i < half; i++) {
                const double c = (double)t->table[t->positions[r] * turned + i], a = (double)t->x[at + i];
                const double s = (double)t->table[t->positions[r] * turned + half + i] * (t->inverse ? -1 : 1);
                const double b = (double)t->x[at + half + i];
                y[at + i] = a * c - b * s + (t->accumulate ? (double)t->y[at + i] : 0);
                y[at + half + i] = b * c + a * s + (t->accumulate ? (double)t->y[at + half + i] : 0);
            }
            for (i = turned; i < d; i++) y[at + i] = (double)t->x[at + i] + (t->accumulate ? (double)t->y[at + i] : 0);
        }
    }
    return y;
}

static void rope_check(int64_t rows, int64_t heads, int64_t head_dim, int64_t rotary_dim, int32_t dtype) {
    const int64_t n = rows * heads * head_dim;
    rope_case t = {.rows = rows, .heads = heads, .head_dim = head_dim, .dtype = dtype};
    int32_t *positions = malloc((size_t)rows * sizeof *positions);
    int way = 0;
    t.rotary_dim = rotary_dim;
    for (int64_t r = 0; r < rows; r++) positions[r] = (int32_t)(r * 11 % ROPE_PLACES);
    t.positions = positions;
    t.x = numbers_of(dtype, n, 1), t.y = numbers_of(dtype, n, 1), t.table = numbers(ROPE_PLACES * head_dim, 1);
    for (way = 0; way < 6; way++) {
        float *got = NULL;
        double *want = NULL;
        t.inverse = way & 1;
        t.accumulate = way / 2 == 1;
        t.in_place = way / 2 == 2;
        want = rope_oracle(&t);
        got = every_way(rope_run, &t, "rope");
        expect_cells("rope", got, want, n, dtype, 3e-7, 0);
        free(got), free(want);
    }
    free((void *)t.x), free((void *)t.y), free((void *)t.table), free(positions);
}

TESTS(rope_of_odd_shapes, n_types()) {
    rope_check(1, 1, 2, 0, dtypes[_i]);
    rope_check(5, 3, 6, 0, dtypes[_i]);
    rope_check(61, 6, 48, 0, dtypes[_i]);
    rope_check(7, 2, 128, 0, dtypes[_i]);
    rope_check(5, 3, 7, 2, dtypes[_i]);
    rope_check(33, 4, 80, 32, dtypes[_i]);
    rope_check(9, 2, 20, 20, dtypes[_i]);
}

TESTS(rope_refuses_what_does_not_fit, n_types()) {
    run r = {.device = devices[0], .shift = 4};
    const int32_t positions[3] = {0, 5, ROPE_PLACES};
    const rope_case t = {.rows = 3, .heads = 2, .head_dim = 4, .positions = positions, .dtype = dtypes[_i]};
    const int64_t cell = weft_dtype_bytes(t.dtype);
    weft_rope args = rope_args(&r, &t);
    REFUSES(&r, rope, &args, REF(args, x, cell), REF(args, y, cell), REF(args, positions, 4), REF(args, table, 4));
    if (is_seen_by_the_host()) {
        REJECTS(&r, rope, &args, WEFT_E_HOST, "positions[2] is 37");
    }
    args.head_dim = 3;
    REJECTS(&r, rope, &args, WEFT_E_HOST, "");
    args.head_dim = 4, args.rotary_dim = 6;
    REJECTS(&r, rope, &args, WEFT_E_HOST, "6 elements of a head of 4");
    args.rotary_dim = 0;
    args.heads = (int64_t)1 << 40, args.head_dim = (int64_t)1 << 24; /* rows of 2^64 elements */
    REJECTS(&r, rope, &args, WEFT_E_HOST, "operand x");
    args.heads = 2, args.head_dim = 4;
    args.dtype = WEFT_F64;
    REJECTS(&r, rope, &args, WEFT_E_UNSUPPORTED, "");
    end_run(&r);
}

/* If the host cannot see positions, one outside the table makes only its own row NaN. */
TESTS(rope_of_positions_beyond_the_table_is_nan, !is_cpu() ? n_types() : 0) {
    const int32_t positions[4] = {0, ROPE_PLACES, -1, 5};
    rope_case t = {.rows = 4, .heads = 2, .head_dim = 10, .rotary_dim = 6, .positions = positions};
    float *got = NULL;
    t.dtype = dtypes[_i];
    t.x = numbers_of(t.dtype, 80, 1), t.table = numbers(ROPE_PLACES * 6, 1);
    got = every_way(rope_run, &t, "rope beyond its table");
    for (int64_t i = 0; i < 80; i++) HOLDS(isnan(got[i]) == (i >= 20 && i < 60));
    free((void *)t.x), free((void *)t.table), free(got);
}

/* ---- activation ---- */

typedef struct activation_case {
    int64_t n;
    const float *x, *up, *dy, *dx, *dup;
    int32_t form, dtype;
    bool gated, adds, in_place;
} activation_case;

static weft_activation activation_args(run *r, const activation_case *t) {
    weft_activation args = {.struct_size = sizeof args, .n = t->n, .form = t->form, .dtype = t->dtype};
    args.x = put_cells(r, t->x, t->n, t->dtype);
    if (t->gated) args.up = put_cells(r, t->up, t->n, t->dtype);
    return args;
}

static void activation_run(run *r, const void *data) {
    const activation_case *t = data;
    weft_activation args = activation_args(r, t);
    args.y = put_cells(r, NULL, t->n, t->dtype);
    RUN(r, activation, &args);
    get_cells(r, args.y, t->n, t->dtype);
}

/* Results: dx, dup. */
static void activation_backward_run(run *r, const void *data) {
    const activation_case *t = data;
    weft_activation args = activation_args(r, t);
    args.accumulate_dx = args.accumulate_dup = t->adds;
    args.dy = put_cells(r, t->dy, t->n, t->dtype);
    args.dx = t->in_place ? args.x : put_cells(r, t->adds ? t->dx : NULL, t->n, t->dtype);
    if (t->gated) args.dup = t->in_place ? args.up : put_cells(r, t->adds ? t->dup : NULL, t->n, t->dtype);
    RUN(r, activation_backward, &args);
    get_cells(r, args.dx, t->n, t->dtype);
    if (t->gated) get_cells(r, args.dup, t->n, t->dtype);
}

/* f(x) and f'(x) by definition, without losing small values. */
static void activation_oracle(int32_t form, double x, double *value, double *slope) {
    const double s = 1 / (1 + exp(-x)), below = 0.5 * erfc(-x / sqrt(2)), around = sqrt(2 / M_PI);
    const double t = 1 / (1 + exp(-2 * around * (x + 0.044715 * x * x * x))); /* (1 + tanh(u)) / 2 */
    switch (form) {
    case WEFT_GELU: *value = x * below, *slope = below + x * exp(-x * x / 2) / sqrt(2 * M_PI); break;
    case WEFT_GELU_TANH:
        *value = x * t;
        *slope = t + x * 2 * t * (1 - t) * around * (1 + 3 * 0.044715 * x * x);
        break;
    default: *value = x * s, *slope = s + x * s * (1 - s); break;
    }
}

static void activation_added(activation_case *t, const float *set, double *dx, double *dup) {
    float *added = NULL;
    t->adds = true;
    added = every_way(activation_backward_run, t, "activation_backward, accumulating");
    for (int64_t i = 0; i < t->n; i++) {
        dx[i] += (double)t->dx[i];
        dup[i] += (double)t->dup[i];
        if (t->dtype == WEFT_F32) HOLDS(added[i] == t->dx[i] + set[i]);
        if (t->dtype == WEFT_F32 && t->gated) HOLDS(added[t->n + i] == t->dup[i] + set[t->n + i]);
    }
    expect_cells("dx, accumulating", added, dx, t->n, t->dtype, 1e-6, 0);
    if (t->gated) expect_cells("dup, accumulating", added + t->n, dup, t->n, t->dtype, 5e-7, 0);
    free(added);
}

static void activation_check(int64_t n, int32_t form, bool gated, int32_t dtype) {
    activation_case t = {.n = n, .form = form, .gated = gated, .dtype = dtype};
    double *y = zeros(n), *dx = zeros(n), *dup = zeros(n);
    float *x = numbers_of(dtype, n, form == WEFT_SILU ? 30 : 8), *out = NULL, *set = NULL, *in_place = NULL;
    x[n / 2] = -200;
    x[0] = 200;
    t.x = x, t.up = numbers_of(dtype, n, 2), t.dy = numbers_of(dtype, n, 1);
    t.dx = numbers_of(dtype, n, 1), t.dup = numbers_of(dtype, n, 1);
    for (int64_t i = 0; i < n; i++) {
        const double u = gated ? (double)t.up[i] : 1, d = (double)t.dy[i];
        double value = 0, slope = 0;
        activation_oracle(form, (double)x[i], &value, &slope);
        y[i] = value * u, dx[i] = d * u * slope, dup[i] = d * value;
    }
    out = every_way(activation_run, &t, "activation");
    expect_cells("activation", out, y, n, dtype, 5e-7, 0);
    set = every_way(activation_backward_run, &t, "activation_backward");
    expect_cells("dx", set, dx, n, dtype, 1e-6, 0);
    if (gated) expect_cells("dup", set + n, dup, n, dtype, 5e-7, 0);
    t.in_place = true;
    in_place = every_way(activation_backward_run, &t, "activation_backward in place");
    ck_assert_mem_eq(in_place, set, (size_t)n * (gated ? 8 : 4));
    t.in_place = false;
    activation_added(&t, set, dx, dup);
    free(y), free(dx), free(dup), free(out), free(set), free(in_place), free(x);
    free((void *)t.up), free((void *)t.dy), free((void *)t.dx), free((void *)t.dup);
}

/* Loop index: type, gated or not, and form. */
TESTS(activations_of_odd_lengths, 6 * n_types()) {
    const int32_t dtype = dtypes[_i / 6], form = _i / 2 % 3;
    const bool gated = (_i & 1) != 0;
    activation_check(2, form, gated, dtype);
    activation_check(17, form, gated, dtype);
    activation_check(50021, form, gated, dtype);
}

/* Element by element from the far tail on: each curve within a few units in its last place. */
TEST(activations_keep_the_digits_of_small_values) {
    const int64_t n = 2001;
    for (int32_t form = WEFT_SILU; form <= WEFT_GELU_TANH; form++) {
        activation_case t = {.n = n, .form = form, .dtype = WEFT_F32};
        float *x = numbers(n, 1), *out = NULL;
        t.x = x;
        for (int64_t i = 0; i < n; i++) x[i] = (float)(i - 1000) * 0.006f;
        out = every_way(activation_run, &t, "activation");
        for (int64_t i = 0; i < n; i++) {
            double value = 0, slope = 0;
            activation_oracle(form, (double)x[i], &value, &slope);
            EXPECT(fabs((double)out[i] - value) <= 5e-6 * fabs(value) + 1e-30,
                   "form %d of %.9g is %.9g and should be %.9g", form, (double)x[i], (double)out[i], value);
        }
        free(x), free(out);
    }
}

/* ---- scale ---- */

typedef struct scale_case {
    int64_t n;
    const float *x, *y;
    double factor, cap;
    int32_t dtype;
    bool adds, in_place;
} scale_case;

static void scale_run(run *r, const void *data) {
    const scale_case *t = data;
    weft_scale args = {.struct_size = sizeof args, .n = t->n, .factor = t->factor, .cap = t->cap, .dtype = t->dtype};
    args.accumulate = t->adds;
    args.x = put_cells(r, t->x, t->n, t->dtype);
    args.y = t->in_place ? args.x : put_cells(r, t->adds ? t->y : NULL, t->n, t->dtype);
    RUN(r, scale, &args);
    get_cells(r, args.y, t->n, t->dtype);
}

/* Without a cap: the single fp32 product, rounded once. */
static void scale_check(int64_t n, double factor, int32_t dtype) {
    for (int way = 0; way < 3; way++) {
        scale_case t = {.n = n, .factor = factor, .dtype = dtype, .adds = way == 1, .in_place = way == 2};
        float *got = NULL;
        t.x = numbers_of(dtype, n, 3), t.y = numbers_of(dtype, n, 1);
        got = every_way(scale_run, &t, "scale");
        for (int64_t i = 0; i < n; i++) {
            const float product = (float)factor * t.x[i];
            HOLDS(got[i] == rounded(t.adds ? product + t.y[i] : product, dtype));
        }
        free(got), free((void *)t.x), free((void *)t.y);
    }
}

static void cap_check(int64_t n, double factor, double cap, int32_t dtype) {
    scale_case t = {.n = n, .factor = factor, .cap = cap, .dtype = dtype};
    double *want = zeros(n);
    float *got = NULL;
    t.x = numbers_of(dtype, n, 30);
    for (int64_t i = 0; i < n; i++) want[i] = cap * tanh(factor * (double)t.x[i] / cap);
    got = every_way(scale_run, &t, "scale with a cap");
    expect_cells("scale with a cap", got, want, n, dtype, 5e-7, 0);
    for (int64_t i = 0; i < n; i++) /* also small ones */
        EXPECT(fabs((double)got[i] - want[i]) <= (dtype == WEFT_F32 ? 1e-6 : 4e-3) * fabs(want[i]),
               "capped %.9g is %.9g and should be %.9g", (double)t.x[i], (double)got[i], want[i]);
    free(got), free(want), free((void *)t.x);
}

TESTS(scales_and_soft_caps, n_types()) {
    scale_check(1, 45.2548339959390416, dtypes[_i]);
    scale_check(40961, 0.22, dtypes[_i]);
    cap_check(5, 1, 50, dtypes[_i]);
    cap_check(40961, 1, 30, dtypes[_i]);
    cap_check(1003, 0.25, 2, dtypes[_i]);
}

TEST(a_soft_cap_hands_nan_on_and_ends_at_the_cap) {
    const float x[] = {NAN, INFINITY, -INFINITY, 0, 0x1p-100f, 1e30f};
    const scale_case t = {.n = 6, .x = x, .factor = 1, .cap = 30, .dtype = WEFT_F32};
    float *got = every_way(scale_run, &t, "scale with a cap");
    HOLDS(isnan(got[0]) && got[1] == 30 && got[2] == -30 && got[3] == 0 && got[5] == 30);
    HOLDS(fabsf(got[4] / 0x1p-100f - 1) < 1e-6f);
    free(got);
}

/* ---- add ---- */

typedef struct add_case {
    int64_t n;
    const float *a, *b;
    int on; /* 0: y separate, 1: aliases a, 2: aliases b */
    int32_t dtype;
} add_case;

static void add_run(run *r, const void *data) {
    const add_case *t = data;
    weft_add args = {.struct_size = sizeof args, .n = t->n, .dtype = t->dtype};
    args.a = put_cells(r, t->a, t->n, t->dtype);
    args.b = put_cells(r, t->b, t->n, t->dtype);
    args.y = t->on == 0 ? put_cells(r, NULL, t->n, t->dtype) : t->on == 1 ? args.a : args.b;
    RUN(r, add, &args);
    get_cells(r, args.y, t->n, t->dtype);
}

TESTS(add_apart_and_in_place, n_types()) {
    const int64_t sizes[] = {1, 15, 33, 16384, 40961};
    for (int s = 0; s < 5; s++) {
        add_case t = {.n = sizes[s], .dtype = dtypes[_i]};
        t.a = numbers_of(t.dtype, t.n, 1), t.b = numbers_of(t.dtype, t.n, 1);
        for (t.on = 0; t.on < 3; t.on++) {
            float *got = every_way(add_run, &t, "add");
            for (int64_t i = 0; i < t.n; i++) HOLDS(got[i] == rounded(t.a[i] + t.b[i], t.dtype));
            free(got);
        }
        free((void *)t.a), free((void *)t.b);
    }
}

enum { EDGES = 10 };
typedef struct edges {
    float a[EDGES], b[EDGES], want[EDGES];
    int32_t dtype, n;
} edges;

/* NaN stays NaN, overflow becomes infinite, and ties round to even. fp16 keeps subnormals in steps of 2^-24, and its
 * largest number is 65504. */
static const edges at_edges[] = {
    {{NAN, INFINITY, 0x1.FEp127f, -0x1.FEp127f, -0.0f, 1.0f, 0x1.02p0f},
     {1.0f, -INFINITY, 0x1p119f, -0x1p119f, -0.0f, 0x1p-8f, 0x1p-8f},
     {NAN, NAN, INFINITY, -INFINITY, -0.0f, 1.0f, 0x1.04p0f},
     WEFT_BF16,
     7},
    {{NAN, INFINITY, 65504.0f, -65504.0f, 65504.0f, -0.0f, 1.0f, 0x1.004p0f, 0x1p-24f, 0x1.8p-23f},
     {1.0f, -INFINITY, 16.0f, -16.0f, 0x1.ep3f, -0.0f, 0x1p-11f, 0x1p-11f, 0x1p-24f, -0x1p-24f},
     {NAN, NAN, INFINITY, -INFINITY, 65504.0f, -0.0f, 1.0f, 0x1.008p0f, 0x1p-23f, 0x1p-23f},
     WEFT_F16,
     10}};

TESTS(sums_at_the_edges_of_16_bits, n_types() > 2 ? 2 : 1) {
    const edges *e = &at_edges[_i];
    for (int64_t n = 1; n <= 70; n += 23) { /* in complete and partial vectors */
        add_case t = {.n = n * e->n, .dtype = e->dtype};
        float *left = numbers(t.n, 1), *right = numbers(t.n, 1), *got = NULL;
        for (int64_t i = 0; i < t.n; i++) left[i] = e->a[i % e->n], right[i] = e->b[i % e->n];
        t.a = left, t.b = right;
        got = every_way(add_run, &t, "add");
        for (int64_t i = 0; i < t.n; i++) {
            const float want = e->want[i % e->n];
            HOLDS(isnan(want) ? isnan(got[i]) : got[i] == want && !signbit(got[i]) == !signbit(want));
        }
        free(left), free(right), free(got);
    }
}

TESTS(elementwise_refuses_what_does_not_fit, n_types()) {
    run r = {.device = devices[0], .shift = 4};
    const int64_t cell = weft_dtype_bytes(dtypes[_i]);
    weft_activation args = {.struct_size = sizeof args, .n = 5, .dtype = dtypes[_i]};
    weft_scale scale = {.struct_size = sizeof scale, .n = 5, .dtype = dtypes[_i]};
    weft_add add = {.struct_size = sizeof add, .n = 5, .dtype = dtypes[_i]};
    weft_ref *all[] = {&args.x,  &args.up, &args.y, &args.dy, &args.dx, &args.dup,
                       &scale.x, &scale.y, &add.a,  &add.b,   &add.y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] = put_cells(&r, NULL, 5, dtypes[_i]);
    REFUSES(&r, activation_backward, &args, REF(args, x, cell), REF(args, up, cell), REF(args, dy, cell),
            OPTIONAL(args, dx, cell), OPTIONAL(args, dup, cell));
    args.dup.buffer = NULL;
    REFUSES(&r, activation, &args, REF(args, x, cell), OPTIONAL(args, up, cell), REF(args, y, cell));
    REFUSES(&r, scale, &scale, REF(scale, x, cell), REF(scale, y, cell));
    REFUSES(&r, add, &add, REF(add, a, cell), REF(add, b, cell), REF(add, y, cell));
    args.form = 3;
    REJECTS(&r, activation, &args, WEFT_E_UNSUPPORTED, "form 3");
    args.form = -1;
    REJECTS(&r, activation_backward, &args, WEFT_E_UNSUPPORTED, "");
    args.form = 0;
    args.dtype = scale.dtype = add.dtype = WEFT_F64;
    REJECTS(&r, activation, &args, WEFT_E_UNSUPPORTED, "");
    REJECTS(&r, activation_backward, &args, WEFT_E_UNSUPPORTED, "");
    REJECTS(&r, scale, &scale, WEFT_E_UNSUPPORTED, "");
    REJECTS(&r, add, &add, WEFT_E_UNSUPPORTED, "fp16");
    end_run(&r);
}

int main(void) {
    return run_device_suite("device.elementwise");
}
