/* The kernels other than matmuls, attention, rows (test_rows.c) and elements (test_elementwise.c), against plain loops
 * in fp64. Those with activations use fp32, bf16 and fp16 by the loop index. */
#include "device/fixture.h"

#include <sys/mman.h>

static weft_error err = WEFT_ERROR_INIT;

/* ---- embedding ---- */

typedef struct embedding_case {
    int64_t rows, width, vocab;
    const int32_t *ids;
    const float *table, *dy, *dtable;
    int accumulate;
    int32_t dtype, dtype_table, has_padding, padding;
} embedding_case;

static weft_embedding embedding_args(const embedding_case *t) {
    const weft_embedding args = {.struct_size = sizeof args,
                                 .rows = t->rows,
                                 .width = t->width,
                                 .vocab = t->vocab,
                                 .accumulate = t->accumulate,
                                 .dtype = t->dtype,
                                 .dtype_table = t->dtype_table,
                                 .has_padding = t->has_padding,
                                 .padding = t->padding};
    return args;
}

static void embedding_run(run *r, const void *data) {
    const embedding_case *t = data;
    weft_embedding args = embedding_args(t);
    args.ids = put(r, t->ids, t->rows * 4);
    args.table = put_cells(r, t->table, t->vocab * t->width, t->dtype_table);
    args.y = put_cells(r, NULL, t->rows * t->width, t->dtype);
    RUN(r, embedding, &args);
    get_cells(r, args.y, t->rows * t->width, t->dtype);
}

static weft_embedding embedding_backward_args(run *r, const embedding_case *t) {
    weft_embedding args = embedding_args(t);
    args.ids = put(r, t->ids, t->rows * 4);
    args.dy = put_cells(r, t->dy, t->rows * t->width, t->dtype);
    args.dtable = put_floats(r, t->accumulate ? t->dtable : NULL, t->vocab * t->width);
    args.workspace = put_workspace(r, table->embedding_backward_workspace(r->device, &args));
    return args;
}

static void embedding_backward_run(run *r, const void *data) {
    const embedding_case *t = data;
    weft_embedding args = embedding_backward_args(r, t);
    RUN(r, embedding_backward, &args);
    get_floats(r, args.dtable, t->vocab * t->width);
}

/* The order of the sum is part of the contract, so the oracle is exact fp32. */
static void embedding_check(int64_t rows, int64_t width, int64_t vocab, int32_t dtype, int32_t dtype_table) {
    embedding_case t = {.rows = rows, .width = width, .vocab = vocab, .dtype = dtype, .dtype_table = dtype_table};
    int32_t *ids = malloc((size_t)rows * sizeof *ids);
    float *sum = calloc((size_t)(vocab * width), sizeof *sum), *got = NULL;
    int64_t r = 0, i = 0;
    for (r = 0; r < rows; r++) ids[r] = (int32_t)(r % 4 == 0 ? vocab - 1 : (r * 31) % ((vocab + 1) / 2));
    t.ids = ids;
    t.table = numbers_of(dtype_table, vocab * width, 1), t.dy = numbers_of(dtype, rows * width, 1),
    t.dtable = numbers(vocab * width, 1);
    got = every_way(embedding_run, &t, "embedding");
    for (i = 0; i < rows * width; i++) HOLDS(got[i] == rounded(t.table[ids[i / width] * width + i % width], dtype));
    free(got);
    for (r = 0; r < rows; r++) {
        for (i = 0; i < width; i++) sum[ids[r] * width + i] += t.dy[r * width + i];
    }
    got = every_way(embedding_backward_run, &t, "embedding_backward");
    for (i = 0; i < vocab * width; i++) HOLDS(got[i] == sum[i]);
    free(got);
    t.accumulate = 1;
    got = every_way(embedding_backward_run, &t, "embedding_backward, accumulating");
    for (i = 0; i < vocab * width; i++) HOLDS(got[i] == t.dtable[i] + sum[i]);
    free(got);
    t.has_padding = 1, t.padding = ids[rows / 2];
    got = every_way(embedding_backward_run, &t, "embedding_backward, accumulating all but the padding");
    for (i = 0; i < vocab * width; i++) HOLDS(got[i] == t.dtable[i] + (i / width == t.padding ? 0.0f : sum[i]));
    free(got);
    t.accumulate = 0;
    got = every_way(embedding_backward_run, &t, "embedding_backward, all but the padding");
    for (i = 0; i < vocab * width; i++) HOLDS(got[i] == (i / width == t.padding ? 0.0f : sum[i]));
    free(got), free(sum), free(ids);
    free((void *)t.table), free((void *)t.dy), free((void *)t.dtable);
}

TESTS(embedding_of_odd_shapes, n_types() * n_types()) {
    const int32_t y = dtypes[_i % n_types()], table_of = dtypes[_i / n_types()];
    embedding_check(1, 1, 1, y, table_of);
    embedding_check(50, 7, 3, y, table_of);
    embedding_check(333, 64, 509, y, table_of);
    if (y == table_of || !is_slow()) embedding_check(71, 517, 1009, y, table_of);
    embedding_check(5, 8, is_slow() ? 3001 : 32000, y, table_of);
    if (is_full()) embedding_check(300, 3, 70001, y, table_of);
    embedding_check(2300, 5, 40, y, table_of);
}

TESTS(embedding_refuses_what_does_not_fit, n_types()) {
    run r = {.device = devices[0], .shift = 8};
    const int32_t ids[4] = {0, 6, 1, -1};
    const int32_t dtype = dtypes[_i], dtype_table = dtypes[(_i + 1) % n_types()];
    const int64_t cell = weft_dtype_bytes(dtype);
    const embedding_case t = {
        .rows = 4, .width = 3, .vocab = 7, .ids = ids, .dtype = dtype, .dtype_table = dtype_table};
    weft_embedding args = embedding_backward_args(&r, &t);
    args.table = put_cells(&r, NULL, 21, dtype_table);
    args.y = put_cells(&r, NULL, 12, dtype);
    REFUSES(&r, embedding_backward, &args, REF(args, ids, 4), REF(args, dy, cell), REF(args, dtable, 4),
            WORKSPACE_REF(args));
    REFUSES(&r, embedding, &args, REF(args, ids, 4), REF(args, table, 6 - cell), REF(args, y, cell));
    if (is_seen_by_the_host()) {
        REJECTS(&r, embedding, &args, WEFT_E_HOST, "ids[3] is -1");
        REJECTS(&r, embedding_backward, &args, WEFT_E_HOST, "");
    }
    args.vocab = INT64_C(1) << 31;
    REJECTS(&r, embedding_backward, &args, WEFT_E_HOST, "exceed the limit of 2^31 - 1");
    args.vocab = -1;
    REJECTS(&r, embedding, &args, WEFT_E_HOST, "vocab is -1");
    args.vocab = 7;
    args.dtype_table = WEFT_F64;
    REJECTS(&r, embedding, &args, WEFT_E_UNSUPPORTED, "");
    args.dtype = WEFT_F64;
    REJECTS(&r, embedding_backward, &args, WEFT_E_UNSUPPORTED, "");
    end_run(&r);
}

/* If the host cannot see ids, one outside the table yields NaN and adds to no row. */
TESTS(embedding_of_ids_beyond_the_table_is_nan, !is_cpu() ? n_types() : 0) {
    const int32_t ids[6] = {0, 7, 2, -1, INT32_MIN, 2};
    embedding_case t = {.rows = 6, .width = 3, .vocab = 7, .ids = ids};
    float *got = NULL;
    t.dtype = t.dtype_table = dtypes[_i];
    t.table = numbers_of(t.dtype, 21, 1), t.dy = numbers_of(t.dtype, 18, 1);
    got = every_way(embedding_run, &t, "embedding beyond the table");
    for (int i = 0; i < 18; i++) HOLDS(isnan(got[i]) == (ids[i / 3] < 0 || ids[i / 3] > 6));
    free(got);
    got = every_way(embedding_backward_run, &t, "embedding_backward beyond the table");
    for (int i = 0; i < 21; i++) HOLDS(got[i] == (i < 3 ? t.dy[i] : i >= 6 && i < 9 ? t.dy[i] + t.dy[9 + i] : 0.0f));
    free(got), free((void *)t.table), free((void *)t.dy);
}

/* ---- square_sum and clip ---- */

typedef struct square_case {
    int64_t n;
    const float *x;
} square_case;

static void square_run(run *r, const void *data) {
    const square_case *t = data;
    weft_square_sum args = {.struct_size = sizeof args, .n = t->n};
    args.x = put_floats(r, t->x, t->n);
    args.out = put_doubles(r, NULL, 1);
    args.workspace = put_workspace(r, table->square_sum_workspace(r->device, &args));
    RUN(r, square_sum, &args);
    get_bytes(r, args.out, 8);
}

/* The tree over existing sums. */
static double node_oracle(const double *x, int64_t n) {
    double *v = zeros(n + 1), sum = 0;
    memcpy(v, x, (size_t)n * sizeof *v);
    for (; n > 1; n = (n + 1) / 2)
        for (int64_t i = 0; i < (n + 1) / 2; i++) v[i] = 2 * i + 1 < n ? v[2 * i] + v[2 * i + 1] : v[2 * i];
    sum = v[0];
    free(v);
    return sum;
}

/* The contract's order: blocks of 64 in order, then level by level. */
static double square_oracle(const float *x, int64_t n) {
    double *v = zeros((n + 63) / 64), sum = 0;
    for (int64_t i = 0; i < n; i++) v[i / 64] += (double)x[i] * (double)x[i];
    sum = node_oracle(v, (n + 63) / 64);
    free(v);
    return sum;
}

TEST(square_sum_has_the_declared_order) {
    const int64_t sizes[] = {0, 1, 63, 64, 65, 577, 65536, 65537, 65600, 200003, 1000003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        square_case t = {.n = sizes[s]};
        float *x = numbers(t.n, 1), *got = NULL;
        for (int64_t i = 0; i < t.n; i += 3) x[i] *= 1e-4f;
        t.x = x;
        got = every_way(square_run, &t, "square_sum");
        HOLDS(double_of(got) == square_oracle(x, t.n));
        free(got), free(x);
    }
}

/* Three extents of x, one of them empty, with separated sums in `out`. */
enum { STRETCHES = 3, MOST_SUMS = 40 };
static const weft_extent stretches[STRETCHES] = {{sizeof(weft_extent), 0, 128, 5001, 2},
                                                 {sizeof(weft_extent), 0, 5200, 0, 1},
                                                 {sizeof(weft_extent), 0, 5248, 64, 30}};

typedef struct stretch_case {
    const float *x;
    const double *sums; /* fp64 instead of x */
    int64_t cell;
} stretch_case;

static weft_square_sum stretch_args(run *r, const stretch_case *t) {
    weft_square_sum args = {.struct_size = sizeof args, .n = 5065, .n_extents = STRETCHES, .cell = t->cell};
    args.dtype = t->sums != NULL ? WEFT_F64 : WEFT_F32;
    args.x = t->sums != NULL ? put_doubles(r, t->sums, 5312) : put_floats(r, t->x, 5312);
    args.out = put_doubles(r, NULL, MOST_SUMS);
    args.extent_stride = sizeof(weft_extent);
    args.extents = put_at(r, stretches, sizeof stretches, r->shift / 8 * 8);
    args.workspace = put_workspace(r, table->square_sum_workspace(r->device, &args));
    return args;
}

static void stretch_run(run *r, const void *data) {
    const weft_square_sum args = stretch_args(r, data);
    RUN(r, square_sum, &args);
    get_bytes(r, args.out, MOST_SUMS * 8);
}

static void stretch_sums(double got[MOST_SUMS], const stretch_case *t) {
    float *bytes = every_way(stretch_run, t, "square_sum");
    memcpy(got, bytes, MOST_SUMS * sizeof *got);
    free(bytes);
}

TEST(square_sums_of_stretches_are_those_of_each) {
    float *x = numbers(5312, 2);
    double nodes[5312], got[MOST_SUMS];
    for (int i = 0; i < 5312; i++) nodes[i] = (double)x[i] * 1e-3;
    stretch_sums(got, &(stretch_case){.x = x});
    HOLDS(got[2] == square_oracle(x + 128, 5001));
    HOLDS(got[1] == 0 && got[30] == square_oracle(x + 5248, 64));
    stretch_sums(got, &(stretch_case){.x = x, .cell = 256});
    for (int i = 0; i < 20; i++) HOLDS(got[2 + i] == square_oracle(x + 128 + 256 * i, i < 19 ? 256 : 5001 - 19 * 256));
    HOLDS(node_oracle(got + 2, 20) == square_oracle(x + 128, 5001));
    HOLDS(got[30] == square_oracle(x + 5248, 64));
    stretch_sums(got, &(stretch_case){.sums = nodes});
    HOLDS(got[2] == node_oracle(nodes + 128, 5001) && got[30] == node_oracle(nodes + 5248, 64));
    free(x);
}

TEST(square_sums_refuse_cells_and_stretches_that_do_not_fit) {
    const int64_t cells[] = {1, 96, 192, 131072, -64};
    run r = {.device = devices[0], .shift = 0};
    weft_square_sum args = stretch_args(&r, &(stretch_case){0});
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        args.cell = cells[i];
        REJECTS(&r, square_sum, &args, WEFT_E_HOST, "64 * 2^k are possible");
    }
    args.cell = 0;
    args.extent_stride = 24;
    REJECTS(&r, square_sum, &args, WEFT_E_HOST, "stride of 24 bytes");
    args.extent_stride = sizeof(weft_extent);
    args.n = 5064;
    if (is_seen_by_the_host()) {
        REJECTS(&r, square_sum, &args, WEFT_E_HOST, "extents of 5065 elements, and n is 5064");
    }
    end_run(&r);
}

/* A table with one wrong extent among valid ones. */
typedef struct wrong_case {
    weft_extent wrong;
    int64_t n, cell;
} wrong_case;

static void wrong_run(run *r, const void *data) {
    const wrong_case *t = data;
    weft_extent extents[3] = {{sizeof(weft_extent), 0, 0, 100, 0}, t->wrong, {sizeof(weft_extent), 0, 100, 100, 5}};
    weft_square_sum args = {.struct_size = sizeof args, .n = t->n, .n_extents = 3, .cell = t->cell};
    float *x = numbers(300, 1);
    args.x = put_floats(r, x, 300);
    args.out = put_doubles(r, NULL, 8);
    args.extent_stride = sizeof(weft_extent);
    args.extents = put_at(r, extents, sizeof extents, r->shift / 8 * 8);
    args.workspace = put_workspace(r, table->square_sum_workspace(r->device, &args));
    RUN(r, square_sum, &args);
    get_bytes(r, args.out, 64);
    free(x);
}

/* If the host cannot see the table, a wrong one makes the sums NaN; nothing outside is accessed. */
TESTS(square_sums_of_a_table_that_does_not_fit_are_nan, !is_cpu() ? 1 : 0) {
    const uint32_t size = sizeof(weft_extent);
    const weft_extent wrong[] = {{size, 0, 290, 11 + CANARY / 4, 1},
                                 {size, 0, -1, 10, 1},
                                 {size, 0, 10, -1, 1},
                                 {size, 0, 0, 10, 8 + CANARY / 8},
                                 {size, 0, 0, 10, -1},
                                 {size, 0, INT64_MAX, 10, 1},
                                 {size, 0, 0, 101, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        for (int64_t cell = 0; cell <= 64; cell += 64) {
            const wrong_case t = {wrong[i], 300, cell};
            float *got = every_way(wrong_run, &t, "square_sum of a wrong table");
            HOLDS(isnan(double_of(got)) && isnan(double_of(got + 10)));
            free(got);
        }
    }
}

typedef struct clip_case {
    int64_t n;
    const double *sums;
    double count, clip;
    float seed; /* 0: no seed */
} clip_case;

static weft_clip clip_args(run *r, const clip_case *t) {
    weft_clip args = {.struct_size = sizeof args, .n = t->n, .clip = t->clip};
    if (t->seed > 0) args.seed = put_floats(r, &t->seed, 1);
    args.square_sums = put_doubles(r, t->sums, t->n);
    args.count = put_doubles(r, &t->count, 1);
    args.norm = put_doubles(r, NULL, 1);
    args.coefficient = put_floats(r, NULL, 1);
    args.skip = put_floats(r, NULL, 1);
    return args;
}

/* Results: norm (two words), coefficient, skip. */
static void clip_run(run *r, const void *data) {
    weft_clip args = clip_args(r, data);
    RUN(r, clip, &args);
    get_bytes(r, args.norm, 8);
    get_floats(r, args.coefficient, 1);
    get_floats(r, args.skip, 1);
}

static void clip_check(const clip_case *t, double norm, float coefficient, int32_t skip) {
    float *got = every_way(clip_run, t, "clip");
    int32_t skipped = -1;
    memcpy(&skipped, got + 3, sizeof skipped);
    HOLDS(isnan(norm) ? isnan(double_of(got)) : double_of(got) == norm);
    HOLDS(got[2] == coefficient);
    ck_assert_int_eq(skipped, skip);
    free(got);
}

TEST(clip_follows_the_norm) {
    const double sums[3] = {9, 16, 144}, bad[2] = {1, INFINITY}, worse[2] = {NAN, 1};
    clip_check(&(clip_case){3, sums, 4, 0, 0}, 3.25, 0.25f, 0);
    clip_check(&(clip_case){3, sums, 4, 1, 0}, 3.25, (float)(1 / (3.25 + 1e-6) / 4), 0);
    clip_check(&(clip_case){3, sums, 4, 5, 0}, 3.25, 0.25f, 0);
    clip_check(&(clip_case){3, sums, 4, 1, 0.5f}, 6.5, (float)(1 / (6.5 + 1e-6) / 2), 0);
    clip_check(&(clip_case){3, sums, 4, 0, 64}, 13.0 / 256, (float)(1.0 / 256), 0);
    clip_check(&(clip_case){0, sums, 4, 1, 0}, 0, 0.25f, 0);
    clip_check(&(clip_case){2, bad, 4, 1, 0}, INFINITY, 0, 1);
    clip_check(&(clip_case){2, worse, 4, 1, 0}, NAN, 0, 1);
}

TEST(sums_refuse_what_does_not_fit) {
    run r = {.device = devices[0], .shift = 8};
    weft_square_sum args = {.struct_size = sizeof args, .n = 5};
    weft_clip clip = clip_args(&r, &(clip_case){.n = 2});
    args.x = put_floats(&r, NULL, 5);
    args.out = put_doubles(&r, NULL, 1);
    args.workspace = put_workspace(&r, table->square_sum_workspace(r.device, &args));
    REFUSES(&r, square_sum, &args, REF(args, x, 4), REF(args, out, 8), WORKSPACE_REF(args));
    REFUSES(&r, clip, &clip, REF(clip, square_sums, 8), REF(clip, count, 8), REF(clip, norm, 8),
            REF(clip, coefficient, 4), REF(clip, skip, 4));
    end_run(&r);
}

/* ---- update ---- */

WEFT_HP(momentum_hp, float lr; float decay;)

WEFT_ELEMENTWISE(momentum, momentum_hp, 2, s0 = 0.9f * s0 + g; s1 += 1.0f;
                 w -= hp->lr * range->lr_scale * (s0 + range->decay * hp->decay * w);)

typedef struct update_case {
    int64_t n;
    const float *w, *g, *s;
    int32_t skip, copy; /* copy: weft_dtype of the weights' copy; 0: none */
} update_case;

/* An update of one region, with `args` pointing to `region`, or of many. */
typedef struct update_call {
    weft_update args;
    weft_update_region region;
} update_call;

static void update_args(update_call *out, run *r, const update_case *t, const weft_range *ranges, int64_t n_ranges) {
    const momentum_hp hp = {0.1f, 0.5f};
    const float coefficient = 0.25f;
    const weft_update_region region = {.struct_size = sizeof region,
                                       .weight = put_floats(r, t->w, t->n),
                                       .gradient = put_floats(r, t->g, t->n),
                                       .states = {put_floats(r, t->s, t->n), put_floats(r, t->s, t->n)},
                                       .ranges =
                                           put_at(r, ranges, n_ranges * (int64_t)sizeof *ranges, r->shift / 8 * 8),
                                       .n = t->n,
                                       .n_ranges = n_ranges,
                                       .range_stride = sizeof *ranges,
                                       .copy = t->copy == 0 ? (weft_ref){NULL, 0} : put_cells(r, NULL, t->n, t->copy),
                                       .copy_dtype = t->copy};
    const weft_update args = {.struct_size = sizeof args,
                              .kernel = &momentum,
                              .hp = put(r, &hp, sizeof hp),
                              .coefficient = put_floats(r, &coefficient, 1),
                              .skip = put(r, &t->skip, 4),
                              .regions = &out->region,
                              .n_regions = 1,
                              .region_stride = sizeof region};
    out->args = args;
    out->region = region;
}

static void split(weft_range *ranges, int64_t n) {
    const int64_t cut[4] = {0, n / 7, n / 7 + n / 2, n};
    for (int i = 0; i < 3; i++) {
        const weft_range row = {sizeof row, 0, cut[i], cut[i + 1] - cut[i], 1.0f + (float)i, i == 1 ? 0.0f : 1.0f};
        ranges[i] = row;
    }
}

/* Results: weight, states. */
static void update_run(run *r, const void *data) {
    const update_case *t = data;
    weft_range ranges[3];
    update_call u;
    split(ranges, t->n);
    update_args(&u, r, t, ranges, 3);
    RUN(r, update, &u.args);
    get_floats(r, u.region.weight, t->n);
    get_floats(r, u.region.states[0], t->n);
    get_floats(r, u.region.states[1], t->n);
}

TEST(update_runs_the_body_over_every_range) {
    const int64_t sizes[] = {1, 13, 50021};
    for (int s = 0; s < 3; s++) {
        update_case t = {.n = sizes[s]};
        weft_range ranges[3];
        float *got = NULL;
        split(ranges, t.n);
        t.w = numbers(t.n, 1), t.g = numbers(t.n, 1), t.s = numbers(t.n, 1);
        got = every_way(update_run, &t, "update");
        for (int64_t i = 0; i < t.n; i++) {
            const weft_range *range = i < ranges[1].offset ? ranges : i < ranges[2].offset ? ranges + 1 : ranges + 2;
            const float state = 0.9f * t.s[i] + t.g[i] * 0.25f;
            const float w = t.w[i] - 0.1f * range->lr_scale * (state + range->decay * 0.5f * t.w[i]);
            HOLDS(got[i] == w && got[t.n + i] == state && got[2 * t.n + i] == t.s[i] + 1.0f);
        }
        free(got);
        t.skip = 1;
        got = every_way(update_run, &t, "update, skipped");
        ck_assert_mem_eq(got, t.w, (size_t)t.n * 4);
        ck_assert_mem_eq(got + t.n, t.s, (size_t)t.n * 4);
        free(got), free((void *)t.w), free((void *)t.g), free((void *)t.s);
    }
}

/* Results: copy, and the weight converted to its type. */
static void copied_run(run *r, const void *data) {
    const update_case *t = data;
    const int64_t bytes = t->n * weft_dtype_bytes(t->copy);
    weft_range ranges[3];
    weft_ref converted;
    update_call u;
    split(ranges, t->n);
    update_args(&u, r, t, ranges, 3);
    RUN(r, update, &u.args);
    converted = put_cells(r, NULL, t->n, t->copy);
    ck_assert_msg(table->convert(r->device, NULL, converted, t->copy, u.region.weight, WEFT_F32, t->n, &err) == WEFT_OK,
                  "%s", err.text);
    get_bytes(r, u.region.copy, bytes);
    get_bytes(r, converted, bytes);
}

TESTS(update_writes_the_converted_weights_to_a_copy, 3) {
    const float odd[] = {NAN, INFINITY, -INFINITY, 3.4e38f, -65530.0f, 65535.0f, 6e-8f, -1e-40f};
    const int64_t sizes[] = {13, 50021};
    for (int s = 0; s < 2; s++) {
        update_case t = {.n = sizes[s], .copy = dtypes[_i]};
        const size_t bytes = (size_t)(t.n * weft_dtype_bytes(t.copy));
        float *w = numbers(t.n, 1), *got = NULL;
        memcpy(w + t.n / 3, odd, sizeof odd);
        t.w = w, t.g = numbers(t.n, 1), t.s = numbers(t.n, 1);
        got = every_way(copied_run, &t, "update with a copy");
        ck_assert_mem_eq(got, got + (bytes + 3) / 4, bytes);
        free(got);
        t.skip = 1;
        got = every_way(copied_run, &t, "update with a copy, skipped");
        for (size_t i = 0; i < bytes; i++) HOLDS(((const unsigned char *)got)[i] == 0xFF);
        free(got), free(w), free((void *)t.g), free((void *)t.s);
    }
}

TEST(update_refuses_what_does_not_fit) {
    run r = {.device = devices[0], .shift = 8};
    const float x[5] = {0};
    const update_case t = {.n = 5, .w = x, .g = x, .s = x, .copy = WEFT_BF16};
    weft_range *seen = NULL, ranges[3];
    update_call u;
    split(ranges, 5);
    update_args(&u, &r, &t, ranges, 3);
    REFUSES(&r, update, &u.args, REF(u.region, weight, 4), REF(u.region, gradient, 4), REF(u.region, states[0], 4),
            REF(u.region, states[1], 4), REF(u.region, ranges, 8), OPTIONAL(u.region, copy, 2),
            REF(u.args, coefficient, 4), REF(u.args, skip, 4));
    RUN(&r, update, &u.args);
    u.region.copy_dtype = 0;
    REJECTS(&r, update, &u.args, WEFT_E_UNSUPPORTED, "Allowed: fp32, bf16 and fp16");
    u.region.copy_dtype = WEFT_BF16;
    if (is_seen_by_the_host()) {
        seen = table->host_view(r.device, u.region.ranges);
        seen[2].offset--; /* an overlap */
        REJECTS(&r, update, &u.args, WEFT_E_HOST, "ranges[2]");
        seen[2].offset++;
        seen[2].length++; /* past the end */
        REJECTS(&r, update, &u.args, WEFT_E_HOST, "");
    }
    end_run(&r);
}

/* Regions in slots of one array; the rest of a slot is unused. Every fourth weight is bf16, every ninth region is
 * empty, and every third has no copy. One type has more regions than a small table holds, the other fewer. */
enum { REGIONS = 73, SLOT = 1536 };

static int64_t region_length(int i) {
    return i % 9 == 8 ? 0 : 1 + i * 397 % 1500;
}
static bool region_is_bf16(int i) {
    return i % 4 == 3;
}
static bool region_is_copied(int i) {
    return i % 3 != 0;
}
static weft_ref slot_at(weft_ref array, int i) {
    return (weft_ref){array.buffer, array.offset + (int64_t)i * SLOT * 4};
}

static void list_regions(weft_update_region *out, size_t stride, const update_call *whole) {
    for (int i = 0; i < REGIONS; i++) {
        const weft_update_region region = {
            .struct_size = sizeof region,
            .weight = slot_at(whole->region.weight, i),
            .gradient = slot_at(whole->region.gradient, i),
            .states = {slot_at(whole->region.states[0], i), slot_at(whole->region.states[1], i)},
            .ranges = {whole->region.ranges.buffer, whole->region.ranges.offset + i * (int64_t)sizeof(weft_range)},
            .n = region_length(i),
            .n_ranges = 1,
            .range_stride = sizeof(weft_range),
            .weight_dtype = region_is_bf16(i) ? WEFT_BF16 : 0,
            .copy = {region_is_copied(i) ? whole->region.copy.buffer : NULL, whole->region.copy.offset + i * SLOT * 2},
            .copy_dtype = WEFT_BF16};
        memcpy((char *)out + (size_t)i * stride, &region, sizeof region);
    }
}

static void regions_run(run *r, const void *data) {
    const update_case *t = data;
    const size_t stride = sizeof(weft_update_region) + 24; /* a later SDK's are longer */
    weft_update_region *regions = calloc(REGIONS, stride);
    weft_range ranges[REGIONS];
    update_call u;
    for (int i = 0; i < REGIONS; i++)
        ranges[i] = (weft_range){sizeof *ranges, 0, 0, region_length(i), 1.0f + (float)(i % 3), 1.0f};
    update_args(&u, r, t, ranges, REGIONS);
    list_regions(regions, stride, &u);
    u.args.regions = regions;
    u.args.n_regions = REGIONS;
    u.args.region_stride = (uint32_t)stride;
    RUN(r, update, &u.args);
    memset(regions, 0xff, REGIONS * stride); /* the caller may reuse them */
    get_floats(r, u.region.weight, t->n);
    get_floats(r, u.region.states[0], t->n);
    get_bytes(r, u.region.copy, t->n * 2);
    free(regions);
}

static void expect_region(const float *got, const float *states, const update_case *t, int i) {
    const uint16_t *stored = (const uint16_t *)(const void *)(t->w + i * SLOT);
    const int64_t n = region_length(i), first = (int64_t)i * SLOT;
    const int64_t kept = region_is_bf16(i) ? (n + 1) / 2 : n; /* elements of the weight array */
    for (int64_t k = 0; k < n; k++) {
        const float state = 0.9f * t->s[first + k] + t->g[first + k] * 0.25f;
        const float before = region_is_bf16(i) ? float_of_bf16(stored[k]) : t->w[first + k];
        const float w = before - 0.1f * (1.0f + (float)(i % 3)) * (state + 0.5f * before);
        HOLDS(states[first + k] == state);
        if (!region_is_bf16(i)) HOLDS(got[first + k] == w);
        else if (isnan(w))
            HOLDS(isnan(float_of_bf16(((const uint16_t *)(const void *)(got + first))[k]))); /* any NaN */
        else HOLDS(((const uint16_t *)(const void *)(got + first))[k] == bf16_of(bf16_near(w)));
    }
    ck_assert_mem_eq(got + first + kept, t->w + first + kept, (size_t)(SLOT - kept) * 4);
    ck_assert_mem_eq(states + first + n, t->s + first + n, (size_t)(SLOT - n) * 4);
}

/* Checks a slot's copy of its updated weights; the rest of the slot keeps its bytes. */
static void expect_copy(const float *weights, const uint16_t *copy, int i) {
    const int64_t n = region_is_copied(i) ? region_length(i) : 0;
    const uint16_t *stored = (const uint16_t *)(const void *)weights;
    for (int64_t k = 0; k < n; k++) HOLDS(copy[k] == (region_is_bf16(i) ? stored[k] : bf16_of(bf16_near(weights[k]))));
    for (int64_t k = n; k < SLOT; k++) HOLDS(copy[k] == 0xFFFF);
}

TEST(update_takes_all_regions_of_a_step) {
    const int64_t n = (int64_t)REGIONS * SLOT;
    update_case t = {.n = n, .w = numbers(n, 1), .g = numbers(n, 1), .s = numbers(n, 1), .copy = WEFT_BF16};
    float *got = every_way(regions_run, &t, "update of many regions");
    for (int i = 0; i < REGIONS; i++) {
        expect_region(got, got + n, &t, i);
        expect_copy(got + i * SLOT, (const uint16_t *)(const void *)(got + 2 * n) + i * SLOT, i);
    }
    free(got), free((void *)t.w), free((void *)t.g), free((void *)t.s);
}

/* All regions are validated before any is changed, including the last. */
TEST(update_judges_every_region_first) {
    run r = {.device = devices[0], .shift = 8};
    const float x[5] = {1, 2, 3, 4, 5};
    const update_case t = {.n = 5, .w = x, .g = x, .s = x};
    weft_update_region regions[2];
    weft_range ranges[3];
    update_call u;
    split(ranges, 5);
    update_args(&u, &r, &t, ranges, 3);
    regions[0] = regions[1] = u.region;
    regions[1].n = 1 << 20;
    u.args.regions = regions;
    u.args.n_regions = 2;
    REJECTS(&r, update, &u.args, WEFT_E_HOST, "");
    regions[1] = u.region;
    regions[1].struct_size = 8;
    REJECTS(&r, update, &u.args, WEFT_E_HOST, "");
    u.args.n_regions = 1;
    u.args.region_stride = 8;
    REJECTS(&r, update, &u.args, WEFT_E_HOST, "1 regions have a stride of 8 bytes");
    u.args.n_regions = 0;
    RUN(&r, update, &u.args);
    get_floats(&r, u.region.weight, 5);
    ck_assert_mem_eq(r.results, x, sizeof x);
    end_run(&r);
    free(r.results);
}

/* ---- convert ---- */

static float convert_one(run *r, const void *value, int64_t bytes, int32_t from, int32_t to, void *out) {
    weft_ref source = put(r, value, bytes), target = put(r, NULL, 4), back = put(r, NULL, 4);
    float x = 0;
    ck_assert_msg(table->convert(r->device, NULL, target, to, source, from, 1, &err) == WEFT_OK, "%s", err.text);
    ck_assert_int_eq(table->read(r->device, NULL, out, target, weft_dtype_bytes(to), &err), WEFT_OK);
    ck_assert_int_eq(table->convert(r->device, NULL, back, WEFT_F32, target, to, 1, &err), WEFT_OK);
    ck_assert_int_eq(table->read(r->device, NULL, &x, back, 4, &err), WEFT_OK);
    end_run(r);
    return x;
}

/* 16-bit numbers keep their bits, and numbers between two neighbours round to nearest even. */
static void convert_round_trips(int32_t dtype, uint32_t last) {
    run r = {.device = devices[2]};
    const int64_t n = last;
    uint16_t *half = malloc((size_t)n * 2), *again = malloc((size_t)n * 2);
    float *wide = malloc((size_t)n * 4), *middle = malloc((size_t)n * 4), *close = malloc((size_t)n * 4);
    weft_ref halves, floats;
    int64_t i = 0;
    for (i = 0; i < n; i++) half[i] = (uint16_t)i;
    halves = put(&r, half, n * 2);
    floats = put(&r, NULL, n * 4);
    ck_assert_int_eq(table->convert(r.device, NULL, floats, WEFT_F32, halves, dtype, n, &err), WEFT_OK);
    ck_assert_int_eq(table->read(r.device, NULL, wide, floats, n * 4, &err), WEFT_OK);
    for (i = 1; i < n; i++) HOLDS(wide[i] > wide[i - 1]);
    for (i = 0; i < n - 1; i++) {
        middle[i] = (float)(((double)wide[i] + (double)wide[i + 1]) / 2);
        close[i] = nextafterf(middle[i], INFINITY);
    }
    for (int step = 0; step < 3; step++) {
        const float *from = step == 0 ? wide : step == 1 ? middle : close;
        ck_assert_int_eq(table->write(r.device, NULL, floats, from, (n - 1) * 4, &err), WEFT_OK);
        ck_assert_int_eq(table->convert(r.device, NULL, halves, dtype, floats, WEFT_F32, n - 1, &err), WEFT_OK);
        ck_assert_int_eq(table->read(r.device, NULL, again, halves, (n - 1) * 2, &err), WEFT_OK);
        for (i = 0; i < n - 1; i++) HOLDS(again[i] == (step == 0 ? i : step == 1 ? i + (i & 1) : i + 1));
    }
    end_run(&r);
    free(half), free(again), free(wide), free(middle), free(close);
}

TEST(convert_rounds_to_nearest_even) {
    run r = {.device = devices[1]};
    const float big = 65520, below = 65519.99f, nan = NAN, minus = -2.5f, tiny = 1e-10f;
    uint16_t h = 0;
    convert_round_trips(WEFT_BF16, 0x7F80); /* all finite ones, from zero up */
    convert_round_trips(WEFT_F16, 0x7C00);
    HOLDS(convert_one(&r, &big, 4, WEFT_F32, WEFT_F16, &h) == INFINITY);
    HOLDS(convert_one(&r, &below, 4, WEFT_F32, WEFT_F16, &h) == 65504);
    HOLDS(isnan(convert_one(&r, &nan, 4, WEFT_F32, WEFT_F16, &h)));
    HOLDS(isnan(convert_one(&r, &nan, 4, WEFT_F32, WEFT_BF16, &h)));
    HOLDS(convert_one(&r, &minus, 4, WEFT_F32, WEFT_F16, &h) == -2.5f);
    ck_assert_int_eq(h, 0xC100);
    HOLDS(convert_one(&r, &tiny, 4, WEFT_F32, WEFT_F16, &h) == 0);
    h = 0xC020; /* bf16 -2.5 */
    HOLDS(convert_one(&r, &h, 2, WEFT_BF16, WEFT_F16, &h) == -2.5f);
    HOLDS(convert_one(&r, &h, 2, WEFT_F16, WEFT_BF16, &h) == -2.5f);
}

typedef struct convert_case {
    const float *x;
    int64_t n;
    int32_t dtype;
} convert_case;

static void convert_run(run *r, const void *data) {
    const convert_case *t = data;
    weft_ref from = put_floats(r, t->x, t->n), to = put(r, NULL, t->n * weft_dtype_bytes(t->dtype));
    ck_assert_int_eq(table->convert(r->device, NULL, to, t->dtype, from, WEFT_F32, t->n, &err), WEFT_OK);
    get_bytes(r, to, t->n * weft_dtype_bytes(t->dtype));
}

TEST(convert_in_pieces_and_within_bounds) {
    const int32_t types[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    float *x = numbers(70001, 3);
    run r = {.device = devices[0]};
    weft_ref from = put_floats(&r, x, 10), to = put_floats(&r, NULL, 10);
    for (int i = 0; i < 3; i++) {
        const convert_case t = {x, 70001, types[i]};
        free(every_way(convert_run, &t, "convert"));
    }
    ck_assert_int_eq(table->convert(r.device, NULL, to, WEFT_F32, from, WEFT_BF16, 27, &err), WEFT_E_HOST);
    ck_assert_int_eq(table->convert(r.device, NULL, to, WEFT_BF16, from, WEFT_F32, 27, &err), WEFT_E_HOST);
    ck_assert_int_eq(table->convert(r.device, NULL, to, WEFT_I32, from, WEFT_F32, 1, &err), WEFT_E_UNSUPPORTED);
    ck_assert_int_eq(table->convert(r.device, NULL, to, WEFT_F32, from, 99, 1, &err), WEFT_E_UNSUPPORTED);
    end_run(&r);
    free(x);
}

/* ---- memory, streams, the device ---- */

TEST(memory_moves_in_out_and_within) {
    weft_device *d = devices[3];
    const int64_t n = 5 << 20; /* large enough for huge pages */
    weft_ref a = {NULL, 0}, b = {NULL, 12};
    char *from = malloc((size_t)n), *to = malloc((size_t)n);
    weft_stream *stream = NULL;
    weft_event *event = NULL;
    for (int64_t i = 0; i < n; i++) from[i] = (char)(i * 37 + i / 4096);
    ck_assert_int_eq(table->stream_create(d, &stream, &err), WEFT_OK);
    ck_assert_int_eq(table->alloc(d, &a.buffer, n, &err), WEFT_OK);
    ck_assert_int_eq(table->alloc(d, &b.buffer, n + 12, &err), WEFT_OK);
    if (is_seen_by_the_host()) ck_assert_uint_eq((uintptr_t)table->host_view(d, a) % 4096, 0);
    ck_assert_int_eq(table->write(d, stream, a, from, n, &err), WEFT_OK);
    ck_assert_int_eq(table->copy(d, stream, b, a, n, &err), WEFT_OK);
    ck_assert_int_eq(table->record_event(d, stream, &event, &err), WEFT_OK);
    ck_assert_int_eq(table->wait(d, NULL, event, &err), WEFT_OK);
    ck_assert_int_eq(table->synchronize(d, stream, &err), WEFT_OK);
    ck_assert_int_eq(table->read(d, stream, to, b, n, &err), WEFT_OK);
    ck_assert_mem_eq(from, to, (size_t)n);
    ck_assert_int_eq(table->fill(d, stream, b, 0x12345678u, n / 4, &err), WEFT_OK);
    ck_assert_int_eq(table->read(d, stream, to, b, n, &err), WEFT_OK);
    for (int64_t i = 0; i < n / 4; i++) HOLDS(((uint32_t *)(void *)to)[i] == 0x12345678u);
    table->stream_destroy(d, stream);
    table->release(d, a.buffer);
    table->release(d, b.buffer);
    table->release(d, NULL);
    free(from), free(to);
}

static int64_t resident_pages(const char *from, int64_t bytes) {
    const uintptr_t first = ((uintptr_t)from + 4095) / 4096 * 4096,
                    pages = ((uintptr_t)from + (uintptr_t)bytes - first) / 4096;
    unsigned char *page = malloc(pages);
    int64_t n = 0;
    ck_assert_int_eq(mincore((void *)first, pages * 4096, page), 0);
    for (uintptr_t i = 0; i < pages; i++) n += page[i] & 1;
    free(page);
    return n;
}

/* Zeroing a large range drops its pages; the memory around both ends is unchanged. */
TESTS(large_ranges_are_cleared_by_giving_pages_back, is_cpu() ? 4 : 0) {
    weft_device *d = devices[_i];
    const int64_t n = 24 << 20, begin = 12 + 4 * 1000, words = (n - 2 * begin) / 4;
    weft_ref a = {NULL, 0}, inside = {NULL, begin};
    char *at = NULL;
    ck_assert_int_eq(table->alloc(d, &a.buffer, n, &err), WEFT_OK);
    inside.buffer = a.buffer;
    at = table->host_view(d, a);
    ck_assert_int_eq(table->fill(d, NULL, a, 0, n / 4, &err), WEFT_OK);
    ck_assert_int_lt(resident_pages(at, n), 1024); /* a new buffer is untouched except at its ends */
    memset(at, 0x5A, (size_t)n);
    ck_assert_int_eq(resident_pages(at, n), n / 4096);
    ck_assert_int_eq(table->fill(d, NULL, inside, 0, words, &err), WEFT_OK);
    ck_assert_int_lt(resident_pages(at, n), 1025);
    for (int64_t i = 0; i < n; i++) HOLDS(at[i] == (i >= begin && i < begin + 4 * words ? 0 : 0x5A));
    ck_assert_int_eq(table->fill(d, NULL, inside, 1, words, &err), WEFT_OK);
    for (int64_t i = 0; i < words; i++) HOLDS(((uint32_t *)(void *)(at + begin))[i] == 1);
    table->release(d, a.buffer);
}

TEST(memory_within_one_buffer_and_not_beyond) {
    weft_device *d = devices[3];
    const int64_t n = 100000;
    weft_ref a = {NULL, 0}, b = {NULL, 8};
    char *from = malloc((size_t)n), *to = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) from[i] = (char)(i * 37 + i / 4096);
    ck_assert_int_eq(table->alloc(d, &a.buffer, n + 12, &err), WEFT_OK);
    b.buffer = a.buffer;
    ck_assert_int_eq(table->write(d, NULL, a, from, n, &err), WEFT_OK);
    ck_assert_int_eq(table->copy(d, NULL, b, a, n, &err), WEFT_OK); /* self-copy */
    ck_assert_int_eq(table->read(d, NULL, to, b, n, &err), WEFT_OK);
    ck_assert_mem_eq(from, to, (size_t)n);
    b.offset = 16;
    ck_assert_int_eq(table->copy(d, NULL, b, a, n, &err), WEFT_E_HOST);
    ck_assert_int_eq(table->write(d, NULL, b, from, n, &err), WEFT_E_HOST);
    ck_assert_int_eq(table->read(d, NULL, to, b, n, &err), WEFT_E_HOST);
    ck_assert_int_eq(table->fill(d, NULL, b, 0, n / 4, &err), WEFT_E_HOST);
    ck_assert_int_eq(table->write(d, NULL, b, from, -1, &err), WEFT_E_HOST);
    table->release(d, a.buffer);
    free(from), free(to);
}

TEST(memory_that_cannot_be_had_is_an_error) {
    weft_buffer *b = NULL;
    ck_assert_int_eq(table->alloc(devices[0], &b, (int64_t)1 << 60, &err), WEFT_E_MEMORY);
    ck_assert_int_eq(table->alloc(devices[0], &b, -1, &err), WEFT_E_HOST);
    ck_assert_ptr_null(b);
    ck_assert_int_eq(table->alloc(devices[0], &b, 0, &err), WEFT_OK);
    table->release(devices[0], b);
}

static bool processor_has_tiles(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("amx-bf16") != 0;
#else
    return false;
#endif
}

/* True if bf16 pairs are multiplied in hardware, without a lower limit. On a processor with tiles, pairs are slower
 * than fp32, and this process may have no tiles. */
static bool multiplies_bf16(const char *isa) {
    const char *most = getenv("DNNL_MAX_CPU_ISA");
    const bool all = most == NULL || *most == 0 || strcmp(most, "ALL") == 0 || strstr(most, "BF16") != NULL ||
                     strstr(most, "AMX") != NULL;
    if (is_amx() || processor_has_tiles()) return strcmp(isa, "amx-bf16") == 0;
#if defined(__x86_64__)
    return all && __builtin_cpu_supports("avx512bf16") != 0;
#else
    return false;
#endif
}

TEST(device_says_what_it_is) {
    weft_device_info info = {.struct_size = sizeof info};
    weft_device *d = NULL;
    int64_t threads = INT64_MIN + 1; /* auto */
    table->info(devices[2], &info);
    ck_assert_uint_gt(strlen(info.name), 0);
    ck_assert_uint_gt(strlen(info.isa), 0);
    ck_assert_uint_gt(strlen(info.backend), 0);
    ck_assert_int_gt(info.memory, 0);
    if (!is_cpu()) return;
    ck_assert_int_eq(info.threads, 3);
    ck_assert_msg(strncmp(info.backend, "oneDNN ", 7) == 0, "%s", info.backend);
    ck_assert_int_eq(info.has_bf16, multiplies_bf16(info.isa));
    ck_assert_int_eq(info.has_bf16, strcmp(info.isa, "avx512-bf16") == 0 || strcmp(info.isa, "amx-bf16") == 0);
    if (is_amx()) ck_assert_str_eq(info.isa, "amx-bf16");
    ck_assert_int_eq(table->create(&d, &host, &threads, 1, &err), WEFT_OK); /* the second rank of a machine */
    table->info(d, &info);
    ck_assert_int_ge(info.threads, 1);
    table->destroy(d);
}

int main(void) {
    return run_device_suite("device.kernels");
}
