/* The bytes that each kernel of the CUDA device must move, and those that it does move, counted on the double (see
 * double/bytes.cpp): at most 1.1 times as many, over shapes as models have them, or as many as the table in
 * docs/cuda.md gives a reason for. The table is this test's: a row that is not there, or says something else, is a
 * failure. */
#include <weft/blocks.h>
#include <weft_double.h>

#include "device/fixture.h"

/* ---- a case ---- */

/* Kernels that one call of an operator starts, and what an operator that reads each operand once and writes each result
 * once would move in their place. */
typedef struct moved {
    const char *kernels[3];
    const char *shape;
    int64_t must;
    double most; /* how many times that may be moved */
} moved;

static run work = {0};

/* Zeros, which are fine ids, positions, starts and numbers. */
static weft_ref cleared(int64_t bytes) {
    void *data = calloc(1, (size_t)bytes + 1);
    const weft_ref ref = put(&work, data, bytes);
    free(data);
    return ref;
}
/* 0, step, 2 step, ... */
static weft_ref ids(int64_t n, int32_t step) {
    int32_t *data = malloc((size_t)n * sizeof *data);
    weft_ref ref;
    for (int64_t i = 0; i < n; i++) data[i] = (int32_t)i * step;
    ref = put(&work, data, n * 4);
    free(data);
    return ref;
}
static weft_ref ones(int64_t n) {
    float *data = malloc((size_t)n * sizeof *data);
    weft_ref ref;
    for (int64_t i = 0; i < n; i++) data[i] = 1.0f;
    ref = put(&work, data, n * 4);
    free(data);
    return ref;
}
static weft_ref scratch(int64_t bytes) {
    return bytes == 0 ? (weft_ref){NULL, 0} : cleared(bytes);
}

static void begin(void) {
    work = (run){.device = devices[0]};
    double_count_bytes(1);
}

static char *documented;

static void read_documented(void) {
    char path[4096];
    size_t n = 0;
    FILE *file = NULL;
    if (documented != NULL) return;
    (void)snprintf(path, sizeof path, "%s/docs/cuda.md", getenv("WEFT_SOURCE"));
    file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    documented = calloc(1, 1 << 20);
    n = fread(documented, 1, (1 << 20) - 1, file);
    ck_assert_uint_gt(n, 0);
    (void)fclose(file);
}

/* All that was queued has run by now. */
static void end(const moved *m) {
    weft_error err = WEFT_ERROR_INIT;
    long long moves = 0, asked = 0;
    char names[200] = "", row[400];
    ck_assert_int_eq(table->synchronize(work.device, NULL, &err), WEFT_OK);
    read_documented();
    for (size_t i = 0; i < 3 && m->kernels[i] != NULL; i++) {
        const size_t n = strlen(names);
        (void)snprintf(names + n, sizeof names - n, "%s`%s`", i == 0 ? "" : ", ", m->kernels[i]);
        moves += double_bytes(m->kernels[i], &asked);
    }
    (void)snprintf(row, sizeof row, "| %s | %s | %.3f | %.2f |", names, m->shape, (double)m->must * 1e-6,
                   (double)moves / (double)m->must);
    printf("%s asked for %.2f times\n", row, (double)asked / (double)m->must);
    (void)fflush(stdout);
    ck_assert_msg((double)moves <= m->most * (double)m->must, "%s: more than %.2f times", row, m->most);
    ck_assert_msg((double)moves >= 0.99 * (double)m->must, "%s: less than must be moved", row);
    ck_assert_msg(getenv("WEFT_BYTES_PRINT") != NULL || strstr(documented, row) != NULL, "docs/cuda.md has no row %s",
                  row);
    end_run(&work);
    double_count_bytes(0);
}

#define LIMIT 1.1

/* ---- rows ---- */

/* x (rows, width) of bf16, in and out. */
static void check_norm(int64_t rows, int64_t width, bool residual, const char *shape) {
    weft_norm a = {.struct_size = sizeof a, .rows = rows, .width = width, .eps = 1e-5, .dtype = WEFT_BF16};
    const int64_t cells = rows * width * 2;
    const moved m = {{"norm_rows"}, shape, (residual ? 4 : 2) * cells + width * 4 + rows * 4, LIMIT};
    begin();
    a.x = cleared(cells), a.y = cleared(cells), a.gain = cleared(width * 4), a.rstd = cleared(rows * 4);
    if (residual) a.residual = cleared(cells), a.sum = cleared(cells);
    RUN(&work, norm, &a);
    end(&m);
}
static void check_norm_backward(int64_t rows, int64_t width, double most, const char *shape) {
    weft_norm a = {.struct_size = sizeof a, .rows = rows, .width = width, .eps = 1e-5, .dtype = WEFT_BF16};
    const int64_t cells = rows * width * 2;
    const moved m = {{"norm_rows_backward", "add_runs"}, shape, 3 * cells + 2 * width * 4 + rows * 4, most};
    begin();
    a.x = cleared(cells), a.dy = cleared(cells), a.dx = cleared(cells), a.gain = cleared(width * 4),
    a.rstd = cleared(rows * 4);
    a.dgain = cleared(width * 4);
    a.workspace = scratch(table->norm_backward_workspace(work.device, &a));
    RUN(&work, norm_backward, &a);
    end(&m);
}
START_TEST(norms) {
    check_norm(512, 2048, false, "512 rows of 2,048");
    check_norm(512, 2048, true, "512 rows of 2,048, added to a residual");
    check_norm(8192, 64, false, "8,192 rows of 64, as of heads");
    check_norm(128, 8192, false, "128 rows of 8,192");
    check_norm_backward(256, 8192, 1.2, "256 rows of 8,192");
    if (!is_full()) return;
    check_norm_backward(8192, 1024, LIMIT, "8,192 rows of 1,024");
    check_norm_backward(2048, 2048, 1.2, "2,048 rows of 2,048");
}
END_TEST

START_TEST(rows_by_themselves) {
    const int64_t rows = 512, heads = 32, dim = 64, cells = rows * heads * dim * 2;
    weft_rope a = {
        .struct_size = sizeof a, .rows = rows, .heads = heads, .head_dim = dim, .table_rows = rows, .dtype = WEFT_BF16};
    const moved m = {{"rope_rows"}, "512 places of 32 heads of 64", 2 * cells + rows * 4 + rows * dim * 4, LIMIT};
    begin();
    a.x = cleared(cells), a.y = cleared(cells), a.positions = ids(rows, 1), a.table = cleared(rows * dim * 4);
    RUN(&work, rope, &a);
    end(&m);
}
END_TEST

START_TEST(sums_over_rows) {
    const int64_t rows = 2048, width = 2048;
    weft_sum_rows a = {.struct_size = sizeof a, .rows = rows, .width = width, .dtype = WEFT_BF16};
    const moved m = {{"sum_run", "add_runs"}, "2,048 rows of 2,048", rows * width * 2 + width * 4, LIMIT};
    begin();
    a.x = cleared(rows * width * 2), a.out = cleared(width * 4);
    a.workspace = scratch(table->sum_rows_workspace(work.device, &a));
    RUN(&work, sum_rows, &a);
    end(&m);
}
END_TEST

/* ---- element by element ---- */

START_TEST(elements) {
    const int64_t n = 1 << 20;
    weft_activation f = {.struct_size = sizeof f, .n = n, .form = WEFT_SILU, .dtype = WEFT_BF16};
    weft_scale s = {.struct_size = sizeof s, .n = n, .factor = 2.0, .dtype = WEFT_BF16};
    weft_add a = {.struct_size = sizeof a, .n = n, .dtype = WEFT_BF16};
    weft_error err = WEFT_ERROR_INIT;
    const moved forward = {{"activation_forward"}, "1,048,576 elements, gated", 6 * n, LIMIT};
    const moved backward = {{"activation_backward"}, "the same", 10 * n, LIMIT};
    const moved scaled = {{"scale_cells"}, "1,048,576 elements", 4 * n, LIMIT};
    const moved added = {{"add_cells"}, "1,048,576 elements", 6 * n, LIMIT};
    const moved rounded_down = {{"convert"}, "1,048,576 elements, fp32 to bf16", 6 * n, LIMIT};
    const moved filled = {{"fill"}, "1,048,576 words", 4 * n, LIMIT};
    weft_ref x, y;
    begin();
    f.x = cleared(2 * n), f.up = cleared(2 * n), f.y = cleared(2 * n);
    RUN(&work, activation, &f);
    end(&forward);
    begin();
    f.x = cleared(2 * n), f.up = cleared(2 * n), f.dy = cleared(2 * n), f.dx = cleared(2 * n), f.dup = cleared(2 * n);
    f.y = (weft_ref){NULL, 0};
    RUN(&work, activation_backward, &f);
    end(&backward);
    begin();
    s.x = cleared(2 * n), s.y = cleared(2 * n);
    RUN(&work, scale, &s);
    end(&scaled);
    begin();
    a.a = cleared(2 * n), a.b = cleared(2 * n), a.y = cleared(2 * n);
    RUN(&work, add, &a);
    end(&added);
    begin();
    x = cleared(4 * n), y = cleared(2 * n);
    ck_assert_int_eq(table->convert(work.device, NULL, y, WEFT_BF16, x, WEFT_F32, n, &err), WEFT_OK);
    end(&rounded_down);
    begin();
    x = cleared(4 * n);
    ck_assert_int_eq(table->fill(work.device, NULL, x, 7, n, &err), WEFT_OK);
    end(&filled);
}
END_TEST

WEFT_HP(moments_hp, float lr;)
WEFT_ELEMENTWISE(moments_update, moments_hp, 2, s0 += g; s1 += g * g; w -= hp->lr * range->lr_scale * s0 / (1.0f + s1);)

START_TEST(an_update) {
    const int64_t n = 1 << 19;
    const weft_range range = {sizeof range, 0, 0, n, 1.0f, 1.0f};
    weft_update u = {
        .struct_size = sizeof u, .kernel = &moments_update, .n = n, .n_ranges = 1, .range_stride = sizeof range};
    const moved m = {{"weft_update"}, "524,288 elements, two states", 28 * n, LIMIT};
    begin();
    u.weight = cleared(4 * n), u.gradient = cleared(4 * n), u.states[0] = cleared(4 * n), u.states[1] = cleared(4 * n);
    u.hp = cleared(64), u.coefficient = cleared(4), u.skip = cleared(4);
    u.ranges = put(&work, &range, sizeof range);
    RUN(&work, update, &u);
    end(&m);
}
END_TEST

/* ---- tables ---- */

START_TEST(look_ups) {
    const int64_t rows = 1024, width = 1024, vocab = 4096;
    weft_embedding e = {.struct_size = sizeof e,
                        .rows = rows,
                        .width = width,
                        .vocab = vocab,
                        .dtype = WEFT_BF16,
                        .dtype_table = WEFT_BF16};
    const moved forward = {{"take_rows"}, "1,024 rows of 1,024", rows * (4 + 4 * width), LIMIT};
    const moved backward = {
        {"sort_rows", "sum_rows_of_id"}, "the same, 4,096 ids", rows * (4 + 2 * width) + vocab * width * 4, LIMIT};
    begin();
    e.ids = ids(rows, 3), e.table = cleared(vocab * width * 2), e.y = cleared(rows * width * 2);
    RUN(&work, embedding, &e);
    end(&forward);
    begin();
    e.ids = ids(rows, 3), e.dy = cleared(rows * width * 2), e.dtable = cleared(vocab * width * 4);
    e.workspace = scratch(table->embedding_backward_workspace(work.device, &e));
    RUN(&work, embedding_backward, &e);
    end(&backward);
}
END_TEST

START_TEST(packed_matrices) {
    const int64_t n = 1024, k = 1024;
    weft_matmul a = {.struct_size = sizeof a, .m = 16, .n = n, .k = k, .lda = k, .ldb = k, .ldc = n};
    const moved m = {{"unpack"}, "1,024 x 1,024", n * k / 64 * 68 + n * k * 2, LIMIT};
    begin();
    a.dtype_a = a.dtype_c = WEFT_BF16, a.dtype_b = WEFT_I8X64, a.transpose_b = 1;
    a.a = cleared(16 * k * 2), a.b = cleared(n * k / 64 * 68), a.c = cleared(16 * n * 2);
    a.workspace = scratch(table->matmul_workspace(work.device, &a));
    RUN(&work, matmul, &a);
    end(&m);
}
END_TEST

/* ---- the norm of the gradient ---- */

START_TEST(squares_of_a_gradient) {
    enum { TENSORS = 8 };
    const int64_t each = 1 << 17, n = TENSORS * each;
    weft_extent rows[TENSORS];
    weft_square_sum s = {
        .struct_size = sizeof s, .n = n, .n_extents = TENSORS, .extent_stride = sizeof rows[0], .dtype = WEFT_F32};
    const moved squares = {{"count_units", "sum_units", "sum_extents"}, "8 tensors of 131,072", 4 * n, LIMIT};
    for (int64_t i = 0; i < TENSORS; i++) rows[i] = (weft_extent){sizeof rows[0], 0, i * each, each, i};
    begin();
    s.x = cleared(4 * n), s.out = cleared(8 * TENSORS), s.extents = put(&work, rows, sizeof rows);
    s.workspace = scratch(table->square_sum_workspace(work.device, &s));
    RUN(&work, square_sum, &s);
    end(&squares);
}
END_TEST

/* ---- the head ---- */

/* Its own kernels; products are the library's. Logits are fp32, their gradient bf16 in the same place. */
static void check_losses(int64_t vocab, double most, const char *shape) {
    const int64_t rows = 32, width = 64;
    weft_head h = {.struct_size = sizeof h, .rows = rows, .width = width, .vocab = vocab, .dtype = WEFT_BF16};
    const moved row_losses = {{"row_losses"}, shape, rows * (vocab * 6 + 16), most};
    begin();
    h.x = cleared(rows * width * 2), h.w = cleared(vocab * width * 2), h.targets = ids(rows, 1);
    h.weights = ones(rows), h.loss = cleared(8), h.dx = cleared(rows * width * 2);
    h.workspace = scratch(table->head_loss_grad_workspace(work.device, &h));
    RUN(&work, head_loss_grad, &h);
    end(&row_losses);
}
START_TEST(losses) {
    check_losses(32000, LIMIT, "32 rows of 32,000 logits");
    if (is_full()) check_losses(128256, 1.7, "32 rows of 128,256 logits");
}
END_TEST

START_TEST(rows_of_the_head) {
    const int64_t rows = 512, width = 2048, vocab = 64;
    weft_head h = {.struct_size = sizeof h, .rows = rows, .width = width, .vocab = vocab, .dtype = WEFT_BF16};
    const moved taken = {{"take_rows_that_count"}, "512 rows of 2,048", rows * (width * 4 + 4), LIMIT};
    begin();
    h.x = cleared(rows * width * 2), h.w = cleared(vocab * width * 2), h.targets = ids(rows, 0);
    h.weights = ones(rows), h.loss = cleared(8);
    h.workspace = scratch(table->head_loss_workspace(work.device, &h));
    RUN(&work, head_loss, &h);
    end(&taken);
}
END_TEST

/* ---- attention ---- */

enum { HEADS = 8, KV_HEADS = 2, DIM = 64 };

static weft_attention attention_of(int64_t length) {
    weft_attention a = {.struct_size = sizeof a,
                        .batch = 1,
                        .length = length,
                        .heads = HEADS,
                        .kv_heads = KV_HEADS,
                        .head_dim = DIM,
                        .scale = 0.125,
                        .dtype = WEFT_BF16};
    return a;
}

START_TEST(attentions) {
    const int64_t length = 512, q = length * HEADS * DIM * 2, kv = length * KV_HEADS * DIM * 2;
    const int64_t numbers_of_rows = length * HEADS * 4, starts = length * 4;
    weft_attention a = attention_of(length);
    const moved forward = {{"attention_forward"},
                           "512 places, 8 heads of 64, 2 of keys",
                           2 * q + 2 * kv + numbers_of_rows + starts,
                           LIMIT};
    const moved delta = {{"attention_delta"}, "the same", 2 * q + numbers_of_rows, LIMIT};
    const moved queries = {
        {"attention_backward_queries"}, "the same", 3 * q + 2 * kv + 2 * numbers_of_rows + starts, LIMIT};
    const moved keys = {{"attention_backward_keys"}, "the same", 2 * q + 4 * kv + 2 * numbers_of_rows + starts, LIMIT};
    const moved *const parts[] = {&delta, &queries, &keys};
    begin();
    a.q = cleared(q), a.k = cleared(kv), a.v = cleared(kv), a.o = cleared(q), a.lse = cleared(numbers_of_rows);
    a.starts = ids(length, 0);
    a.workspace = scratch(table->attention_workspace(work.device, &a));
    RUN(&work, attention, &a);
    end(&forward);
    for (int i = 0; i < 3; i++) {
        begin();
        a.q = cleared(q), a.k = cleared(kv), a.v = cleared(kv), a.o = cleared(q), a.lse = cleared(numbers_of_rows);
        a.starts = ids(length, 0), a.d_o = cleared(q), a.dq = cleared(q), a.dk = cleared(kv), a.dv = cleared(kv);
        a.workspace = scratch(table->attention_backward_workspace(work.device, &a));
        RUN(&work, attention_backward, &a);
        end(parts[i]);
    }
}
END_TEST

START_TEST(a_token) {
    const int64_t past = 1000, cache = 1024, row = KV_HEADS * DIM * 2, q = HEADS * DIM * 2;
    weft_attention a = attention_of(1);
    const moved token = {{"attention_decode"}, "a token behind 1,000", 2 * q + 2 * (past + 1) * row + 4, LIMIT};
    begin();
    a.cache_rows = cache, a.q = cleared(q), a.o = cleared(q), a.k = cleared(cache * row), a.v = cleared(cache * row);
    a.new_k = cleared(row), a.new_v = cleared(row), a.starts = ids(1, 0);
    a.past = put(&work, &past, 8);
    a.workspace = scratch(table->attention_workspace(work.device, &a));
    RUN(&work, attention, &a);
    end(&token);
}
END_TEST

static void fill(TCase *tests) {
    tcase_add_test(tests, norms);
    tcase_add_test(tests, rows_by_themselves);
    tcase_add_test(tests, sums_over_rows);
    tcase_add_test(tests, elements);
    tcase_add_test(tests, an_update);
    tcase_add_test(tests, look_ups);
    tcase_add_test(tests, packed_matrices);
    tcase_add_test(tests, squares_of_a_gradient);
    tcase_add_test(tests, losses);
    tcase_add_test(tests, rows_of_the_head);
    tcase_add_test(tests, attentions);
    tcase_add_test(tests, a_token);
}

int main(void) {
    return run_device_suite("bytes", fill);
}
