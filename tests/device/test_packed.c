/* Matmuls with a packed operand against plain loops in fp64 over the decoded numbers, in both orientations, with
 * incomplete panels, in every way. And the blocks themselves. */
#include <weft/blocks.h>

#include "device/fixture.h"

enum { BLOCK = 64, BYTES = 68 };

static const int32_t packed_types[] = {WEFT_I8X64, WEFT_NF4, WEFT_F8X128, WEFT_NF4X64};
enum { N_PACKED = 4 };

typedef struct types {
    int32_t a, c;
} types;
static const types all_types[5] = {
    {WEFT_F32, WEFT_F32}, {WEFT_BF16, WEFT_F32}, {WEFT_BF16, WEFT_BF16}, {WEFT_F16, WEFT_F32}, {WEFT_F16, WEFT_F16}};

/* b: (rows, width) in blocks; op(b) is (k, n). */
typedef struct packed_case {
    int64_t m, n, k;
    int transpose_b, accumulate;
    types types;
    int32_t packed;
    const float *a, *c, *bias; /* bias NULL: no bias */
    const unsigned char *b;
    int64_t b_bytes;
} packed_case;

static weft_matmul args_of(const packed_case *t) {
    const weft_matmul args = {.struct_size = sizeof args,
                              .m = t->m,
                              .n = t->n,
                              .k = t->k,
                              .lda = t->k,
                              .ldb = t->transpose_b ? t->k : t->n,
                              .ldc = t->n,
                              .dtype_a = t->types.a,
                              .dtype_b = t->packed,
                              .dtype_c = t->types.c,
                              .transpose_b = t->transpose_b,
                              .accumulate = t->accumulate,
                              .has_bias = t->bias != NULL};
    return args;
}

static void run_case(run *r, const void *data) {
    const packed_case *t = data;
    weft_matmul args = args_of(t);
    args.a = put_matrix(r, t->a, t->m * t->k, t->types.a);
    args.b = put(r, t->b, t->b_bytes);
    args.c = put_matrix(r, t->c, t->m * t->n, t->types.c);
    if (t->bias != NULL) args.bias = put_floats(r, t->bias, t->n);
    args.workspace = put_workspace(r, table->matmul_workspace(r->device, &args));
    RUN(r, matmul, &args);
    get_cells(r, args.c, t->m * t->n, t->types.c);
}

/* Decodes fp8 e4m3 from its fields. */
static float e4m3(unsigned char code) {
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const float size = exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    return code < 128 ? size : -size;
}

/* Decodes element i of b from its bytes. */
static double number_of(const packed_case *t, int64_t i) {
    static const float levels[] = {WEFT_NF4_LEVELS}, dynamic[] = {WEFT_DYNAMIC8_LEVELS};
    const int64_t at = i % weft_dtype_block(t->packed);
    const unsigned char *block = t->b + i / weft_dtype_block(t->packed) * weft_dtype_bytes(t->packed);
    float scale = 0, added = 0, level = 0;
    memcpy(&scale, block, sizeof scale);
    memcpy(&added, block + 4, sizeof added);
    if (t->packed == WEFT_I8X64) level = (float)(int8_t)block[4 + at];
    if (t->packed == WEFT_F8X128) level = e4m3(block[4 + at]);
    if (t->packed == WEFT_NF4X64) level = levels[at % 2 == 0 ? block[4 + at / 2] >> 4 : block[4 + at / 2] & 15];
    if (t->packed == WEFT_NF4) {
        const float part = dynamic[block[8 + at / 64]] * scale;
        scale = part + added;
        level = levels[at % 2 == 0 ? block[24 + at / 2] >> 4 : block[24 + at / 2] & 15];
    }
    return (double)rounded(scale * level, t->types.a);
}

/* size: expected magnitude of a sum with random signs; an actual sum may cancel to less. products: the sums without an
 * older value or a bias. */
static double *oracle(const packed_case *t, double *size, double *products) {
    double *out = zeros(t->m * t->n), squares = 0;
    for (int64_t i = 0; i < t->m; i++) {
        for (int64_t j = 0; j < t->n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < t->k; k++) {
                const double term = (double)t->a[i * t->k + k] *
                                    number_of(t, t->transpose_b ? j * t->k + k : k * t->n + j);
                sum += term;
                squares += term * term;
            }
            products[i * t->n + j] = sum;
            if (t->accumulate) sum += (double)t->c[i * t->n + j];
            if (t->bias != NULL) sum += (double)rounded(t->bias[j], t->types.c);
            out[i * t->n + j] = sum;
        }
    }
    *size = sqrt(squares / (double)(t->m * t->n));
    return out;
}

static float random_scale(int64_t b) {
    return ldexpf(1.0f + number() / 2, (int)(b % 7) - 9);
}

static unsigned char random_code(int32_t packed) {
    const unsigned char code = (unsigned char)(int8_t)lrintf(127 * number());
    return packed == WEFT_F8X128 && (code & 0x7F) == 0x7F ? 0x7E : code; /* except the NaNs */
}

/* Random codes, with scales of very different size; n numbers. */
static unsigned char *random_blocks(int32_t packed, int64_t n) {
    const int64_t bytes = weft_dtype_bytes(packed), blocks = weft_dtype_span(packed, n) / bytes;
    const int64_t head = packed == WEFT_NF4 ? 8 : 4;
    unsigned char *out = malloc((size_t)(blocks * bytes));
    for (int64_t b = 0; b < blocks; b++) {
        const float scale = random_scale(b), added = 1.5f * scale;
        memcpy(out + b * bytes, &scale, sizeof scale);
        memcpy(out + b * bytes + 4, &added, sizeof added);
        for (int64_t i = head; i < bytes; i++) out[b * bytes + i] = random_code(packed);
    }
    return out;
}

static void check(int of_types, int64_t m, int64_t n, int64_t k, int transpose_b, int accumulate, bool biased) {
    if (is_too_large(m * n * k)) return;
    const types of = all_types[of_types / N_PACKED];
    const int32_t packed = packed_types[of_types % N_PACKED];
    float *a = numbers_of(of.a, m * k, 1), *c = numbers_of(of.c, m * n, 1), *bias = numbers(n, 1), *got = NULL;
    unsigned char *b = random_blocks(packed, n * k);
    const packed_case t = {m,      n, k, transpose_b,          accumulate, of,
                           packed, a, c, biased ? bias : NULL, b,          weft_dtype_span(packed, n * k)};
    double size = 0, *products = zeros(m * n), *want = oracle(&t, &size, products);
    char name[96];
    (void)snprintf(name, sizeof name, "packed matmul %lldx%lldx%lld, %s, transpose_b %d", (long long)m, (long long)n,
                   (long long)k, weft_dtype_name(packed), transpose_b);
    got = every_way(run_case, &t, name);
    expect_sums(name, got, want, is_cpu() || !(accumulate || biased) ? NULL : products, m * n, of.c, sum_error(k),
                m * n == 1 ? size / 2 : 0);
    free(a), free(b), free(c), free(bias), free(got), free(want), free(products);
}

/* Rows of b: any n; for types whose blocks span rows, also any row length. */
TESTS(weights_forward, n_mixes() * N_PACKED) {
    check(_i, 1, 1, 64, 1, 0, false);
    check(_i, 37, 64, 64, 1, 0, true);
    check(_i, 5, 257, 128, 1, 1, false);
    check(_i, 70, 601, 192, 1, 0, false);
    check(_i, 3, 5, 1024, 1, 0, true);
    if (packed_types[_i % N_PACKED] == WEFT_I8X64) return;
    check(_i, 4, 300, 37, 1, 0, true);
    check(_i, 33, 3, 1100, 1, 1, false);
}

/* Columns of b: n in complete blocks, or any n, and any k. */
TESTS(gradients_of_inputs, n_mixes() * N_PACKED) {
    check(_i, 1, 64, 1, 0, 0, false);
    check(_i, 37, 64, 65, 0, 1, false);
    check(_i, 9, 320, 77, 0, 0, false);
    check(_i, 70, 576, 130, 0, 1, false);
    if (packed_types[_i % N_PACKED] == WEFT_I8X64) return;
    check(_i, 4, 37, 300, 0, 1, false);
    check(_i, 33, 1001, 3, 0, 0, false);
}

/* The bytes match weft/blocks.h, and packing rounds to the nearest step. */
TEST(blocks_hold_what_was_packed) {
    unsigned char bytes[BYTES];
    weft_i8x64 block;
    float x[BLOCK], back[BLOCK], scale = 0;
    ck_assert_uint_eq(sizeof block, BYTES);
    ck_assert_int_eq(weft_dtype_block(WEFT_I8X64), BLOCK);
    ck_assert_int_eq(weft_dtype_bytes(WEFT_I8X64), BYTES);
    ck_assert_int_eq(weft_dtype_span(WEFT_I8X64, 3 * BLOCK), 3 * BYTES);
    ck_assert_str_eq(weft_dtype_name(WEFT_I8X64), "int8x64");
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < BLOCK; i++) x[i] = ldexpf(number(), round - 100);
        x[round % BLOCK] = 0;
        weft_i8x64_pack(&block, x);
        weft_i8x64_unpack(back, &block);
        memcpy(bytes, &block, BYTES);
        memcpy(&scale, bytes, sizeof scale);
        for (int i = 0; i < BLOCK; i++) {
            EXPECT(back[i] == scale * (float)(int8_t)bytes[4 + i], "element %d lies elsewhere", i);
            EXPECT(fabsf(back[i] - x[i]) <= scale * 0.500001f, "%g became %g in steps of %g", (double)x[i],
                   (double)back[i], (double)scale);
        }
        ck_assert(!(back[round % BLOCK] < 0) && !(back[round % BLOCK] > 0));
    }
}

/* Ties round to even, zeros stay, and non-finite numbers affect their complete block. */
TEST(edges_of_packing) {
    weft_i8x64 block;
    float x[BLOCK] = {127.0f, 0.5f, 1.5f, -2.5f, -127.0f, 126.5f}, back[BLOCK];
    const float broken[] = {NAN, INFINITY, -INFINITY};
    weft_i8x64_pack(&block, x);
    ck_assert(block.scale == 1.0f);
    ck_assert(block.q[0] == 127 && block.q[1] == 0 && block.q[2] == 2 && block.q[3] == -2 && block.q[4] == -127 &&
              block.q[5] == 126 && block.q[6] == 0);
    memset(x, 0, sizeof x);
    weft_i8x64_pack(&block, x);
    weft_i8x64_unpack(back, &block);
    for (int i = 0; i < BLOCK; i++) ck_assert(!(back[i] < 0) && !(back[i] > 0));
    for (int k = 0; k < 3; k++) {
        memset(x, 0, sizeof x);
        x[7] = broken[k];
        weft_i8x64_pack(&block, x);
        weft_i8x64_unpack(back, &block);
        for (int i = 0; i < BLOCK; i++) ck_assert(isnan(back[i]));
    }
}

TEST(the_device_says_that_it_takes_them) {
    weft_device_info info = {.struct_size = sizeof info};
    table->info(devices[0], &info);
    ck_assert_uint_eq(info.packed, 1u << WEFT_I8X64 | 1u << WEFT_NF4 | 1u << WEFT_NF4X64 | 1u << WEFT_F8X128);
}

TEST(wrong_operands_are_refused) {
    run r = {.device = devices[0]};
    unsigned char *b = random_blocks(WEFT_I8X64, 128 * 64);
    weft_matmul args = {.struct_size = sizeof args,
                        .m = 2,
                        .n = 128,
                        .k = 64,
                        .lda = 64,
                        .ldb = 64,
                        .ldc = 128,
                        .dtype_a = WEFT_F32,
                        .dtype_b = WEFT_I8X64,
                        .dtype_c = WEFT_F32,
                        .transpose_b = 1};
    args.a = put_floats(&r, NULL, 2 * 64);
    args.b = put(&r, b, 128 * 64 / BLOCK * BYTES);
    args.c = put_floats(&r, NULL, 2 * 128);
    args.workspace = put_workspace(&r, table->matmul_workspace(r.device, &args));
    REFUSES(&r, matmul, &args, REF(args, a, 4), REF(args, b, 4), REF(args, c, 4), WORKSPACE_REF(args));
    args.ldb = 72;
    REJECTS(&r, matmul, &args, WEFT_E_HOST, "row stride of 72");
    args.ldb = args.k = args.lda = 32;
    REJECTS(&r, matmul, &args, WEFT_E_HOST, "complete blocks of 64");
    args.ldb = args.k = args.lda = 65; /* one number too many for the blocks; 64 fit exactly */
    args.dtype_b = WEFT_NF4;
    args.b = put(&r, b, 128 * 64 / 1024 * 536);
    REJECTS(&r, matmul, &args, WEFT_E_HOST, "operand b needs");
    args.ldb = args.k = args.lda = 64;
    args.dtype_b = WEFT_I8X64;
    args.dtype_a = WEFT_I8X64;
    REJECTS(&r, matmul, &args, WEFT_E_UNSUPPORTED, "int8x64");
    end_run(&r);
    free(b);
}

int main(void) {
    return run_device_suite("packed");
}
