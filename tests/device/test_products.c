/* Matmuls against plain loops in fp64. The loop index selects the types of the operands and the result. */
#include <weft/roofline.h>

#include "device/fixture.h"

static weft_error err = WEFT_ERROR_INIT;

typedef struct types {
    int32_t ab, c;
} types;
static const types all_types[5] = {
    {WEFT_F32, WEFT_F32}, {WEFT_BF16, WEFT_F32}, {WEFT_BF16, WEFT_BF16}, {WEFT_F16, WEFT_F32}, {WEFT_F16, WEFT_F16}};

typedef struct matmul_case {
    int64_t m, n, k, pad; /* pad: unused elements between rows */
    const float *bias;    /* NULL: no bias */
    int64_t bias_at;      /* elements before the bias in its buffer */
    int transpose_a, transpose_b, accumulate;
    types types;
    const float *a, *b, *c;
    int64_t a_size, b_size, c_size;
} matmul_case;

static weft_matmul matmul_args(const matmul_case *t) {
    const weft_matmul args = {.struct_size = sizeof args,
                              .m = t->m,
                              .n = t->n,
                              .k = t->k,
                              .lda = (t->transpose_a ? t->m : t->k) + t->pad,
                              .ldb = (t->transpose_b ? t->k : t->n) + t->pad,
                              .ldc = t->n + t->pad,
                              .dtype_a = t->types.ab,
                              .dtype_b = t->types.ab,
                              .dtype_c = t->types.c,
                              .transpose_a = t->transpose_a,
                              .transpose_b = t->transpose_b,
                              .accumulate = t->accumulate,
                              .has_bias = t->bias != NULL};
    return args;
}

static void matmul_case_run(run *r, const void *data) {
    const matmul_case *t = data;
    weft_matmul args = matmul_args(t);
    args.a = put_matrix(r, t->a, t->a_size, t->types.ab);
    args.b = put_matrix(r, t->b, t->b_size, t->types.ab);
    args.c = put_matrix(r, t->c, t->c_size, t->types.c);
    if (t->bias != NULL) {
        args.bias = put_floats(r, t->bias - t->bias_at, t->n + t->bias_at);
        args.bias.offset += t->bias_at * (int64_t)sizeof(float);
    }
    args.workspace = put_workspace(r, table->matmul_workspace(r->device, &args));
    RUN(r, matmul, &args);
    get_cells(r, args.c, t->c_size, t->types.c);
}

/* Returns an operand in fp64, row-major: `row` and `step` are the distances in elements between rows and columns. */
static double *laid_out(const float *x, int64_t rows, int64_t columns, int64_t row, int64_t step) {
    double *out = zeros(rows * columns);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) out[i * columns + j] = (double)x[i * row + j * step];
    }
    return out;
}

static double *matmul_oracle(const matmul_case *t, const weft_matmul *args) {
    const int64_t n = t->n, k = t->k;
    double *a = laid_out(t->a, t->m, k, t->transpose_a ? 1 : args->lda, t->transpose_a ? args->lda : 1);
    double *b = laid_out(t->b, k, n, t->transpose_b ? 1 : args->ldb, t->transpose_b ? args->ldb : 1);
    double *c = zeros(t->c_size), *sums = zeros(n);
    int64_t i = 0, j = 0, p = 0;
    for (i = 0; i < t->c_size; i++) c[i] = (double)t->c[i]; /* gaps between rows do not change */
    for (i = 0; i < t->m; i++) {
        for (j = 0; j < n; j++) sums[j] = 0;
        for (p = 0; p < k; p++) {
            const double left = a[i * k + p], *right = b + p * n;
            for (j = 0; j < n; j++) sums[j] += left * right[j];
        }
        for (j = 0; j < n; j++) c[i * args->ldc + j] = sums[j] + (t->accumulate ? (double)t->c[i * args->ldc + j] : 0);
    }
    free(a), free(b), free(sums);
    return c;
}

/* Accumulation is one addition of the complete product: in fp32 bit for bit; others round afterwards, and devices other
 * than the CPU also before. products: without accumulation. */
static void check_added(const char *name, const matmul_case *t, const double *products, const float *set,
                        const float *added) {
    const weft_matmul args = matmul_args(t);
    double *want = zeros(t->c_size);
    int64_t i = 0, j = 0;
    memcpy(want, products, (size_t)t->c_size * sizeof *want);
    for (i = 0; i < t->m; i++) {
        for (j = 0; j < t->n; j++) {
            const int64_t at = i * args.ldc + j;
            want[at] += (double)t->c[at];
            EXPECT(t->types.c != WEFT_F32 || added[at] == t->c[at] + set[at], "%s: C += AB at (%lld,%lld)", name,
                   (long long)i, (long long)j);
        }
    }
    expect_sums(name, added, want, is_cpu() ? NULL : products, t->c_size, t->types.c, sum_error(t->k), 0);
    free(want);
}

/* Gaps between the rows of an operand have no effect, not even times zero. */
static void spoil_gaps(float *x, int64_t rows, int64_t width, int64_t ld) {
    for (int64_t r = 0; r + 1 < rows; r++) {
        for (int64_t i = width; i < ld; i++) x[r * ld + i] = NAN;
    }
}

/* The quick suite tests large shapes on the CPU only without rounded results and fp16. */
static bool is_too_large_of(types of, int64_t multiply_adds) {
    const bool is_first = of.c == WEFT_F32 && of.ab != WEFT_F16;
    return is_too_large(multiply_adds) || (!is_first && !is_full() && multiply_adds > 12000000);
}

/* Checks one shape against the oracle. */
static void matmul_check(types of, int64_t m, int64_t n, int64_t k, int ta, int tb, int64_t pad) {
    matmul_case t = {.m = m, .n = n, .k = k, .pad = pad, .transpose_a = ta, .transpose_b = tb, .types = of};
    const weft_matmul args = matmul_args(&t);
    float *set = NULL, *added = NULL, *a = NULL, *b = NULL, *c = NULL;
    double *want = NULL;
    char name[96];
    if (is_too_large_of(of, m * n * k)) return;
    (void)snprintf(name, sizeof name, "matmul %lldx%lldx%lld %d%d", (long long)m, (long long)n, (long long)k, ta, tb);
    t.a_size = ((ta ? k : m) - 1) * args.lda + (ta ? m : k); /* the last row ends with the matrix */
    t.b_size = ((tb ? n : k) - 1) * args.ldb + (tb ? k : n);
    t.c_size = (m - 1) * args.ldc + n;
    t.a = a = numbers_of(of.ab, t.a_size, 1);
    t.b = b = numbers_of(of.ab, t.b_size, 1);
    t.c = c = numbers_of(of.c, t.c_size, 1);
    spoil_gaps(a, ta ? k : m, ta ? m : k, args.lda);
    spoil_gaps(b, tb ? n : k, tb ? k : n, args.ldb);
    want = matmul_oracle(&t, &args);
    set = every_way(matmul_case_run, &t, name);
    expect_cells(name, set, want, t.c_size, of.c, sum_error(k), 0);
    t.accumulate = 1;
    added = every_way(matmul_case_run, &t, name);
    check_added(name, &t, want, set, added);
    free(a), free(b), free(c), free(want), free(set), free(added);
}

/* A bias is added like the previous contents of c: to the complete product, once, from c's type. On the CPU the bits
 * are equal; elsewhere another algorithm may compute the product with a bias, and may round it before the addition. The
 * bias begins `at` elements into a buffer. */
static void bias_check(types of, int64_t m, int64_t n, int64_t k, int64_t pad, int64_t at) {
    matmul_case t = {.m = m, .n = n, .k = k, .pad = pad, .transpose_b = 1, .types = of};
    float *bias = numbers(n + at, 1) + at, *a = NULL, *b = NULL, *c = NULL, *biased = NULL, *added = NULL;
    weft_matmul args;
    double *want = NULL, *products = NULL;
    t.a_size = (m - 1) * (k + pad) + k;
    t.b_size = (n - 1) * (k + pad) + k;
    t.c_size = (m - 1) * (n + pad) + n;
    t.a = a = numbers_of(of.ab, t.a_size, 1);
    t.b = b = numbers_of(of.ab, t.b_size, 1);
    t.c = c = numbers_of(of.c, t.c_size, 1);
    t.bias = bias;
    t.bias_at = at;
    biased = every_way(matmul_case_run, &t, "matmul with a bias");
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) c[i * (n + pad) + j] = rounded(bias[j], of.c);
    }
    t.bias = NULL;
    t.accumulate = 1;
    added = every_way(matmul_case_run, &t, "matmul onto a bias");
    args = matmul_args(&t);
    want = matmul_oracle(&t, &args);
    t.accumulate = 0;
    products = matmul_oracle(&t, &args);
    if (is_cpu()) ck_assert_mem_eq(biased, added, (size_t)t.c_size * 4);
    else expect_sums("a bias against an addition", biased, want, products, t.c_size, of.c, sum_error(k), 0);
    free(want), free(products), free(bias - at), free(a), free(b), free(c), free(biased), free(added);
}

/* The range of mixes: on AMX those of bf16. */
#define FROM (is_amx() ? 1 : 0)
#define TO   (is_amx() ? 3 : n_mixes())

TEST_RANGE(products_with_a_bias, FROM, TO) {
    bias_check(all_types[_i], 1, 1, 1, 0, 0);
    bias_check(all_types[_i], 7, 33, 5, 3, 0);
    bias_check(all_types[_i], 7, 33, 5, 3, 9); /* 36 bytes into a buffer, no multiple of a vector */
    bias_check(all_types[_i], 130, 97, 64, 0, 0);
    bias_check(all_types[_i], 600, 200, 96, 16, 0);
    bias_check(all_types[_i], 40, 50, 3000, 0, 0); /* stored sums */
}

TEST_RANGE(products_of_odd_shapes, FROM, TO) {
    int form = 0;
    for (form = 0; form < 4; form++) {
        matmul_check(all_types[_i], 1, 1, 1, form & 1, form >> 1, 0);
        matmul_check(all_types[_i], 37, 53, 29, form & 1, form >> 1, 3);
        matmul_check(all_types[_i], 257, 131, 67, form & 1, form >> 1, 0);
        matmul_check(all_types[_i], 64, 512, 64, form & 1, form >> 1, 0);
        matmul_check(all_types[_i], 269, 389, 97, form & 1, form >> 1, 16);
    }
}

TEST_RANGE(products_that_oneDNN_cuts_by_threads, FROM, TO) {
    matmul_check(all_types[_i], 36, 48, 4096, 0, 0, 0);
    matmul_check(all_types[_i], 172, 64, 512, 0, 1, 0);
    matmul_check(all_types[_i], 128, 128, 4099, 1, 0, 0);
    matmul_check(all_types[_i], 72, 200, 1031, 1, 0, 0);
    matmul_check(all_types[_i], 1, 1000, 288, 0, 1, 0);
    matmul_check(all_types[_i], 3, 5, 9000, 0, 1, 0);
}

/* Rows a multiple of 1 KiB apart, which some instruction sets first copy to panels, several along k. */
TEST_RANGE(products_of_rows_that_collide, FROM, TO) {
    matmul_check(all_types[_i], 70, 256, 1100, 0, 0, 0);
    matmul_check(all_types[_i], 256, 50, 1030, 1, 0, 0);
    matmul_check(all_types[_i], 512, 256, 300, 1, 0, 0);
    matmul_check(all_types[_i], 40, 50, 2048, 0, 1, 0);
    matmul_check(all_types[_i], 256, 40, 2048, 1, 1, 0);
}

/* Sums of several steps, stored in scratch, for more rows than it holds: by columns per thread (if a is read in place)
 * and, with more threads, by all together. */
TEST_RANGE(products_whose_sums_wait, FROM, !is_slow() ? TO : FROM) {
    const int64_t steps = all_types[_i].ab == WEFT_BF16 ? 2 : 1; /* as long as in fp32 */
    matmul_check(all_types[_i], 1100, 150, 1040 * steps, 0, 1, 0);
    matmul_check(all_types[_i], 24, 1540, 2200, 0, 1, 0);
    matmul_check(all_types[_i], 24, 1540, 2200, 1, 0, 0);
}

/* 16-bit rows widened in two parts, for one or two threads; more threads pack them in strips. */
TEST_RANGE(products_of_rows_too_large_to_widen_at_once, 1, !is_slow() && !is_amx() ? n_mixes() : 1) {
    matmul_check(all_types[_i], 525, 350, 8001, 0, 1, 0);
}

/* So many rows and such a long inner dimension that fp32 uses panels on every instruction set that has them: by all
 * threads together, and by columns. Every possible remainder of rows per block and strip occurs. */
TEST_RANGE(products_of_many_rows, FROM, TO) {
    for (int form = 0; form < 4; form++) {
        matmul_check(all_types[_i], 517, 61, 531, form & 1, form >> 1, 3);
        matmul_check(all_types[_i], 580, 23, 520, form & 1, form >> 1, 0);
    }
    matmul_check(all_types[_i], 519, 430, 512, 0, 1, 0);
    matmul_check(all_types[_i], 514, 410, 516, 0, 0, 4);
}

/* Enough columns to divide them among threads and to share the last ones by strips of rows, with b packed for all
 * steps. */
TEST_RANGE(products_whose_last_columns_are_shared_by_rows, FROM, !is_slow() ? TO : FROM) {
    matmul_check(all_types[_i], 519, 390, 2100, 0, 1, 0);
    matmul_check(all_types[_i], 519, 390, 2100, 0, 0, 3);
    matmul_check(all_types[_i], 290, 1540, 520, 0, 1, 0); /* for three and for eight threads */
}

/* On panels an element is one chain over a step. The layout of a has no influence: packed (with or without chunks) or
 * read in place. Two steps, and uneven chunks. Enough columns for division by columns, where 16-bit rows are read in
 * place or widened. */
TEST_RANGE(products_have_the_same_bits_however_a_lies, FROM, TO) {
    matmul_case lies = {.m = 519, .n = 200, .k = 1100, .transpose_b = 1, .types = all_types[_i]}, turned;
    weft_device_info info = {.struct_size = sizeof info};
    float *a = NULL, *b = NULL, *c = NULL, *across = NULL, *one = NULL, *other = NULL;
    table->info(devices[0], &info);
    if (strcmp(info.isa, "base") == 0 || !is_cpu()) {
        printf("skipped: the bits of products on panels: %s has none\n", info.isa);
        return;
    }
    lies.a_size = lies.m * lies.k, lies.b_size = lies.n * lies.k, lies.c_size = lies.m * lies.n;
    lies.a = a = numbers_of(lies.types.ab, lies.a_size, 1);
    lies.b = b = numbers_of(lies.types.ab, lies.b_size, 1);
    lies.c = c = numbers_of(lies.types.c, lies.c_size, 1);
    across = numbers_of(lies.types.ab, lies.a_size, 1);
    for (int64_t at = 0; at < lies.a_size; at++) across[at % lies.k * lies.m + at / lies.k] = a[at];
    turned = lies;
    turned.a = across;
    turned.transpose_a = 1;
    one = every_way(matmul_case_run, &lies, "a as it lies");
    other = every_way(matmul_case_run, &turned, "a across");
    ck_assert_msg(memcmp(one, other, (size_t)lies.c_size * sizeof *one) == 0, "a packed gives other bits");
    free(a), free(b), free(across), free(c), free(one), free(other);
}

/* Each orientation, and dimensions of one; the device checks the library's product itself. */
TESTS(the_roofline_of_a_product_is_measured, is_cpu() ? 4 : 0) {
    const weft_device_roofline *roofline = table->extension(devices[1], WEFT_DEVICE_ROOFLINE);
    const int64_t sizes[][3] = {{37, 53, 29}, {1, 53, 29}, {37, 1, 29}, {37, 53, 1}};
    ck_assert_ptr_nonnull(roofline);
    for (int i = 0; i < 4; i++) {
        const weft_roofline_product p = {.struct_size = sizeof p,
                                         .m = sizes[i][0],
                                         .n = sizes[i][1],
                                         .k = sizes[i][2],
                                         .transpose_a = _i & 1,
                                         .transpose_b = _i >> 1,
                                         .dtype = WEFT_F32};
        double seconds = 0;
        ck_assert_msg(roofline->product(devices[1], &seconds, &p, &err) == WEFT_OK, "%s", err.text);
        ck_assert(seconds > 0 && seconds < 60);
    }
}

/* oneDNN multiplies bf16 only on AVX-512; tiles in plain C are always available. */
static bool library_multiplies_bf16(void) {
    const char *most = getenv("DNNL_MAX_CPU_ISA");
    if (most != NULL && *most != 0 && strcmp(most, "ALL") != 0 && strstr(most, "AVX512") == NULL) return false;
    return instruction_set_is_here("avx512");
}

/* In bf16 too, if it is not widened: the library's matmul, and the peak of registers or tiles. */
TESTS(the_roofline_in_bf16_is_measured, is_cpu() ? 4 : 0) {
    const weft_device_roofline *roofline = table->extension(devices[1], WEFT_DEVICE_ROOFLINE);
    const weft_roofline_product p = {.struct_size = sizeof p,
                                     .m = 37,
                                     .n = 53,
                                     .k = 29,
                                     .transpose_a = _i & 1,
                                     .transpose_b = _i >> 1,
                                     .dtype = WEFT_BF16};
    weft_device_info info = {.struct_size = sizeof info};
    double seconds = 0, peak = 0;
    table->info(devices[1], &info);
    if (!info.has_bf16) {
        ck_assert_int_eq(roofline->product(devices[1], &seconds, &p, &err), WEFT_E_UNSUPPORTED);
        ck_assert_msg(strstr(err.text, info.isa) != NULL, "%s", err.text);
        ck_assert_int_eq(roofline->peak(devices[1], &peak, WEFT_BF16, &err), WEFT_E_UNSUPPORTED);
        return;
    }
    if (!is_amx() || library_multiplies_bf16()) {
        ck_assert_msg(roofline->product(devices[1], &seconds, &p, &err) == WEFT_OK, "%s", err.text);
        ck_assert(seconds > 0 && seconds < 60);
    }
    ck_assert_int_eq(
        roofline->product(devices[1], &seconds,
                          &(weft_roofline_product){.struct_size = sizeof p, .m = 1, .n = 1, .k = 1, .dtype = WEFT_F16},
                          &err),
        WEFT_E_UNSUPPORTED);
    if (_i > 0) return;
    ck_assert_msg(roofline->peak(devices[1], &peak, WEFT_BF16, &err) == WEFT_OK, "%s", err.text);
    ck_assert(peak > 1e8 && peak < 1e15);
}

/* Returns a sum on tiles as specified in docs/numbers.md: parts of at most 2,048 values, each from zero, in steps of
 * 32, whose first and second pair values are separate chains. */
static float sum_on_tiles(const float *a, const float *b, int64_t k) {
    const int64_t words = (k + 1) / 2, parts = (words + 1023) / 1024;
    const int64_t part = ((words + parts - 1) / parts + 15) / 16 * 32;
    float all = 0;
    for (int64_t from = 0; from < k; from += part) {
        float sum = 0;
        for (int64_t step = from; step < from + part && step < k; step += 32) {
            float chains[2] = {0, 0};
            for (int64_t i = step; i < step + 32 && i < k; i++) chains[i % 2] = fmaf(a[i], b[i], chains[i % 2]);
            sum += chains[0] + chains[1];
        }
        all = from == 0 ? sum : all + sum;
    }
    return all;
}

TESTS(sums_on_tiles_have_the_order_that_is_documented, is_amx() ? 1 : 0) {
    enum { M = 3, N = 5, K = 4201 };
    const matmul_case t = {.m = M, .n = N, .k = K, .transpose_b = 1, .types = {WEFT_BF16, WEFT_F32}};
    run r = {.device = devices[0], .shift = 0};
    weft_matmul args = matmul_args(&t);
    float *a = numbers_of(WEFT_BF16, M * K, 11), *b = numbers_of(WEFT_BF16, N * K, 12), c[M * N];
    args.a = put_matrix(&r, a, M * K, WEFT_BF16);
    args.b = put_matrix(&r, b, N * K, WEFT_BF16);
    args.c = put_floats(&r, NULL, M * N);
    args.workspace = put_workspace(&r, table->matmul_workspace(r.device, &args));
    RUN(&r, matmul, &args);
    ck_assert(table->read(r.device, NULL, c, args.c, (int64_t)sizeof c, &err) == WEFT_OK);
    for (int i = 0; i < M * N; i++) ck_assert_float_eq(c[i], sum_on_tiles(a + i / N * K, b + i % N * K, K));
    end_run(&r);
    free(a), free(b);
}

/* The inner dimension is split: the workspace holds at least two parts in addition to each thread's own. */
static void check_cut(types of, int64_t m, int64_t n, int64_t k, int form, int64_t pad) {
    const matmul_case t = {
        .m = m, .n = n, .k = k, .pad = pad, .transpose_a = form & 1, .transpose_b = form >> 1, .types = of};
    const weft_matmul args = matmul_args(&t);
    const int64_t one = table->matmul_workspace(devices[0], &args), two = table->matmul_workspace(devices[1], &args);
    ck_assert_int_eq(way_threads[0] + 1, way_threads[1]);
    if (is_cpu()) ck_assert_int_ge(2 * one - two, 2 * m * n * (int64_t)sizeof(float));
    matmul_check(of, m, n, k, form & 1, form >> 1, pad);
}

/* An inner dimension longer than a panel, in every orientation, with no round sizes; with enough work, it is split. */
TEST_RANGE(products_of_long_inner_dimensions, FROM, TO) {
    for (int form = 0; form < 4; form++) {
        matmul_check(all_types[_i], 9, 161, 1057, form & 1, form >> 1, 1);
        check_cut(all_types[_i], 64, 66, 1030, form, 2); /* two halves would be odd */
        check_cut(all_types[_i], 64, 64, 1600, form, 2);
        check_cut(all_types[_i], 530, 10, 1200, form, 1); /* on panels wherever available */
    }
}

/* Checks for the same kind: a NaN, the same infinity, or finite. */
static void expect_kinds(const char *name, const float *got, const double *want, int64_t n, int64_t *special) {
    for (int64_t i = 0; i < n; i++) {
        const bool same = isfinite(want[i]) ? isfinite(got[i])
                          : isnan(want[i])  ? isnan(got[i])
                                            : isinf(got[i]) && (got[i] > 0) == (want[i] > 0);
        EXPECT(same, "%s: element %lld is %g and should be %g", name, (long long)i, (double)got[i], want[i]);
        *special += !isfinite(want[i]);
    }
}

/* One infinity and one NaN in each operand, around the edges of tiles and steps. */
static void kinds_check(types of, int64_t m, int64_t n, int64_t k, int form, int64_t pad) {
    matmul_case t = {
        .m = m, .n = n, .k = k, .pad = pad, .transpose_a = form & 1, .transpose_b = form >> 1, .types = of};
    const weft_matmul args = matmul_args(&t);
    const int64_t a_row = t.transpose_a ? 1 : args.lda, a_step = t.transpose_a ? args.lda : 1;
    const int64_t b_row = t.transpose_b ? 1 : args.ldb, b_step = t.transpose_b ? args.ldb : 1;
    float *a = NULL, *b = NULL, *c = NULL;
    int64_t special = 0;
    if (is_too_large_of(of, m * n * k)) return;
    t.a_size = (t.transpose_a ? k : m) * args.lda;
    t.b_size = (t.transpose_b ? n : k) * args.ldb;
    t.c_size = m * args.ldc;
    t.a = a = numbers_of(of.ab, t.a_size, 1);
    t.b = b = numbers_of(of.ab, t.b_size, 1);
    t.c = c = numbers_of(of.c, t.c_size, 1);
    spoil_gaps(a, t.transpose_a ? k : m, t.transpose_a ? m : k, args.lda);
    spoil_gaps(b, t.transpose_b ? n : k, t.transpose_b ? k : n, args.ldb);
    a[(m - 1) * a_row + (k - 1) * a_step] = INFINITY;
    a[m / 3 * a_row + k / 2 * a_step] = NAN;
    b[(k - 1) * b_row + (n - 1) * b_step] = 0; /* times infinity: NaN */
    b[k / 3 * b_row + n / 2 * b_step] = -INFINITY;
    b[n / 5 * b_step] = NAN;
    for (t.accumulate = 0; t.accumulate < 2; t.accumulate++) {
        double *want = matmul_oracle(&t, &args);
        float *got = every_way(matmul_case_run, &t, "not finite");
        expect_kinds("not finite", got, want, t.c_size, &special);
        free(want), free(got);
    }
    ck_assert_int_eq(special, 2 * (2 * n + 2 * m - 4));
    free(a), free(b), free(c);
}

/* Non-finite numbers propagate exactly by the rules of arithmetic. */
TEST_RANGE(products_hand_on_what_is_not_finite, FROM, TO) {
    for (int form = 0; form < 4; form++) {
        kinds_check(all_types[_i], 37, 53, 29, form, 3);
        kinds_check(all_types[_i], 269, 389, 97, form, 0);
        kinds_check(all_types[_i], 33, 65, 1100, form, 5);
        kinds_check(all_types[_i], 521, 37, 515, form, 5);
    }
}

static void round_on_device(run *r, weft_ref *ref, const float *x, int64_t n, int32_t dtype) {
    const weft_ref wide = put_floats(r, x, n);
    *ref = put_matrix(r, NULL, n, dtype);
    ck_assert_int_eq(table->convert(r->device, NULL, *ref, dtype, wide, WEFT_F32, n, &err), WEFT_OK);
}

/* fp32 operands, rounded by the device. */
static void rounded_run(run *r, const void *data) {
    const matmul_case *t = data;
    weft_matmul args = matmul_args(t);
    round_on_device(r, &args.a, t->a, t->a_size, t->types.ab);
    round_on_device(r, &args.b, t->b, t->b_size, t->types.ab);
    args.c = put_matrix(r, NULL, t->c_size, WEFT_F32);
    args.workspace = put_workspace(r, table->matmul_workspace(r->device, &args));
    RUN(r, matmul, &args);
    get_floats(r, args.c, t->c_size);
}

/* Rounding affects only the operands: sums are as accurate as in fp32 for the rounded operands, and a hundred or a
 * thousand times further from the products of the original operands. */
TEST_RANGE(products_are_those_of_rounded_operands, 1, n_types()) {
    matmul_case t = {.m = 130, .n = 210, .k = 700, .transpose_b = 1, .types = {dtypes[_i], WEFT_F32}};
    const double near_by = dtypes[_i] == WEFT_F16 ? 1e-3 / 8 : 1e-3;
    weft_matmul args = matmul_args(&t);
    float *a = numbers(130 * 700, 1), *b = numbers(210 * 700, 1), *c = numbers(130 * 210, 1), *got = NULL;
    double *exact = NULL, *near = NULL, off = 0, norm = 0;
    t.a = a, t.b = b, t.c = c, t.a_size = 130 * 700, t.b_size = 210 * 700, t.c_size = 130 * 210;
    exact = matmul_oracle(&t, &args);
    got = every_way(rounded_run, &t, "rounded operands");
    for (int64_t i = 0; i < t.a_size; i++) a[i] = rounded(a[i], t.types.ab);
    for (int64_t i = 0; i < t.b_size; i++) b[i] = rounded(b[i], t.types.ab);
    near = matmul_oracle(&t, &args);
    expect_close("rounded operands", got, near, t.c_size, sum_error(t.k) / 2);
    for (int64_t i = 0; i < t.c_size; i++) {
        off += ((double)got[i] - exact[i]) * ((double)got[i] - exact[i]);
        norm += exact[i] * exact[i];
    }
    ck_assert_msg(sqrt(off / norm) > near_by && sqrt(off / norm) < 4 * near_by, "off by %.3g", sqrt(off / norm));
    free(a), free(b), free(c), free(got), free(exact), free(near);
}

TEST_RANGE(products_leave_the_callers_team_as_it_was, FROM, is_cpu() ? TO : FROM) {
    int (*max_threads)(void) = NULL; /* of the plugin's OpenMP */
    int before = 0;
    *(void **)&max_threads = dlsym(plugin_file, "omp_get_max_threads");
    ck_assert(max_threads != NULL);
    before = max_threads();
    for (int i = 0; i < WAYS; i++) {
        run r = {.device = devices[i]};
        const matmul_case t = {.m = 300, .n = 200, .k = 100, .types = all_types[_i]};
        weft_matmul args = matmul_args(&t);
        args.a = put_matrix(&r, NULL, 30000, t.types.ab);
        args.b = put_matrix(&r, NULL, 20000, t.types.ab);
        args.c = put_matrix(&r, NULL, 60000, t.types.c);
        args.workspace = put_workspace(&r, table->matmul_workspace(r.device, &args));
        RUN(&r, matmul, &args);
        end_run(&r);
        ck_assert_int_eq(max_threads(), before);
    }
}

/* The last positions of each sequence, as in generation: a starts after some of its own rows, inside longer rows. */
static void parts_run(run *r, const void *data) {
    const matmul_case *t = data;
    weft_matmul args = matmul_args(t);
    args.a = put_matrix(r, t->a, t->m * args.lda, t->types.ab);
    args.a.offset += (args.lda - t->k) * weft_dtype_bytes(t->types.ab);
    args.b = put_matrix(r, t->b, t->b_size, t->types.ab);
    args.c = put_matrix(r, NULL, t->c_size, t->types.c);
    args.workspace = put_workspace(r, table->matmul_workspace(r->device, &args));
    RUN(r, matmul, &args);
    get_cells(r, args.c, t->c_size, t->types.c);
}

TEST_RANGE(products_of_the_last_places_of_rows, FROM, TO) {
    const int64_t widths[] = {42, 30, 7, 64};
    for (int i = 0; i < 4; i++) {
        const int64_t k = widths[i], m = 3, n = 37, length = 4;
        matmul_case t = {.m = m, .n = n, .k = k, .pad = (length - 1) * k, .transpose_b = 1, .types = all_types[_i]};
        float *a = numbers_of(t.types.ab, m * length * k, 1), *b = NULL, *c = NULL, *got = NULL;
        weft_matmul args = matmul_args(&t);
        double *want = NULL;
        t.b_size = n * args.ldb, t.c_size = (m - 1) * args.ldc + n;
        t.b = b = numbers_of(t.types.ab, t.b_size, 1);
        t.c = c = numbers(t.c_size, 0);
        t.a = a + args.lda - k;
        want = matmul_oracle(&t, &args);
        t.a = a;
        got = every_way(parts_run, &t, "the last places");
        for (int64_t r = 0; r < m; r++)
            expect_cells("the last places", got + r * args.ldc, want + r * args.ldc, n, t.types.c, 2e-6, 0.1);
        free(a), free(b), free(c), free(got), free(want);
    }
}

TEST_RANGE(products_of_nothing, FROM, TO) {
    const float c[6] = {1, 2, 3, 4, 5, 6}, rows[96] = {0};
    run r = {.device = devices[1]};
    weft_matmul args = {.struct_size = sizeof args, .m = 2, .n = 3, .k = 0, .lda = 1, .ldb = 3, .ldc = 3};
    args.dtype_a = args.dtype_b = all_types[_i].ab;
    args.dtype_c = all_types[_i].c;
    args.accumulate = 1;
    args.c = put_matrix(&r, c, 6, args.dtype_c);
    RUN(&r, matmul, &args);
    get_cells(&r, args.c, 6, args.dtype_c);
    ck_assert_mem_eq(r.results, c, sizeof c);
    args.accumulate = 0;
    RUN(&r, matmul, &args);
    get_cells(&r, args.c, 6, args.dtype_c);
    for (int i = 6; i < 12; i++) HOLDS(r.results[i] == 0);
    args.m = 0;
    RUN(&r, matmul, &args);
    args.a = put_matrix(&r, rows, 96, args.dtype_a);
    args.k = args.lda = 3;
    args.n = 0;
    for (args.m = 0; args.m <= 32; args.m += 16) {
        ck_assert_int_eq(table->matmul_workspace(r.device, &args), 0);
        RUN(&r, matmul, &args);
    }
    end_run(&r);
    free(r.results);
}

TEST_RANGE(products_refuse_what_does_not_fit, FROM, TO) {
    run r = {.device = devices[0], .shift = 8};
    matmul_case t = {.m = 7, .n = 5, .k = _i == 0 ? 3 : 3000, .types = all_types[_i]};
    weft_matmul args = matmul_args(&t), whole;
    const int64_t cell = weft_dtype_bytes(t.types.ab);
    args.a = put_matrix(&r, NULL, 7 * t.k, t.types.ab);
    args.b = put_matrix(&r, NULL, 5 * t.k, t.types.ab);
    args.c = put_matrix(&r, NULL, 35, t.types.c);
    args.accumulate = 1;
    ck_assert_int_gt(table->matmul_workspace(r.device, &args), 0);
    args.workspace = put_workspace(&r, (table->matmul_workspace(r.device, &args) + 7) / 8 * 8);
    REFUSES(&r, matmul, &args, REF(args, a, cell), REF(args, b, cell), REF(args, c, weft_dtype_bytes(t.types.c)),
            WORKSPACE_REF(args));
    whole = args;
    args.ldb = 4;
    REJECTS(&r, matmul, &args, WEFT_E_HOST, "");
    args.ldb = 5;
    args.m = -1;
    REJECTS(&r, matmul, &args, WEFT_E_HOST, "");
    args.m = INT64_MAX / 2;
    REJECTS(&r, matmul, &args, WEFT_E_HOST, "");
    args.m = ((int64_t)1 << 32) + 1; /* that many rows have 2^64 elements */
    args.lda = args.ldc = (int64_t)1 << 32;
    REJECTS(&r, matmul, &args, WEFT_E_HOST, "operand a of 4294967297 x 4294967296 elements");
    args = whole;
    args.has_bias = 1;
    REJECTS(&r, matmul, &args, WEFT_E_UNSUPPORTED, "a bias cannot be combined with");
    args.accumulate = 0;
    REJECTS(&r, matmul, &args, WEFT_E_HOST, "operand bias is missing");
    args = whole;
    args.a.offset -= cell / 2;
    REJECTS(&r, matmul, &args, WEFT_E_HOST, "");
    end_run(&r);
}

/* There are five type combinations. */
TEST(products_refuse_other_types) {
    static const int32_t known[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    run r = {.device = devices[0]};
    const matmul_case t = {.m = 2, .n = 2, .k = 2};
    weft_matmul args = matmul_args(&t);
    int taken = 0;
    args.a = put_floats(&r, NULL, 4), args.b = put_floats(&r, NULL, 4), args.c = put_floats(&r, NULL, 4);
    args.dtype_a = args.dtype_b = args.dtype_c = WEFT_BF16;
    args.workspace = put_workspace(&r, (1 << 16) + table->matmul_workspace(r.device, &args));
    for (int i = 0; i < 27; i++) {
        weft_status status = WEFT_OK;
        args.dtype_a = known[i % 3], args.dtype_b = known[i / 3 % 3], args.dtype_c = known[i / 9];
        status = table->matmul(r.device, NULL, &args, &err);
        taken += status == WEFT_OK;
        if (status == WEFT_OK) continue;
        ck_assert_int_eq(status, WEFT_E_UNSUPPORTED);
        ck_assert_msg(strstr(err.text, "matmul") && (strstr(err.text, "bf16") || strstr(err.text, "fp16")), "%s",
                      err.text);
    }
    ck_assert_int_eq(taken, sizeof all_types / sizeof *all_types);
    end_run(&r);
}

int main(void) {
    return run_device_suite("device.products");
}
