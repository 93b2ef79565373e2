/* Compares the bytes that each kernel of the CUDA device must move with the bytes that it moves, counted on the
 * emulator (see emulator/bytes.cpp). The limit is 1.1 times as many for typical model shapes, or a number with a reason
 * in the table of docs/cuda.md. The table belongs to this test: a missing or different row is a failure, and so is a
 * kernel of the device's sources without a row. */
#include <glob.h>

#include <weft/blocks.h>
#include <weft_emulator.h>

#include "device/fixture.h"
#include "scratch.h"

/* ---- a case ---- */

/* The kernels of one operator call, and the bytes of an ideal operator that reads each operand once and writes each
 * result once. */
typedef struct moved {
    const char *kernels[3];
    const char *shape;
    int64_t must;
    double most; /* allowed factor */
} moved;

static run work = {0};

/* Zeros, valid as ids, positions, starts and numbers. */
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
static weft_ref workspace_of(int64_t bytes) {
    return bytes == 0 ? (weft_ref){NULL, 0} : cleared(bytes);
}

static char *measured; /* the names in all rows so far */

static void begin(void) {
    work = (run){.device = devices[0]};
    emulator_count_bytes(1);
}

static char *documented;

static void read_documented(void) {
    char path[4096];
    if (documented != NULL) return;
    (void)snprintf(path, sizeof path, "%s/docs/cuda.md", getenv("WEFT_SOURCE"));
    documented = read_bytes(path, NULL);
    measured = calloc(1, 1 << 16);
}

/* Waits for all queued work, compares the bytes, and begins the next measurement. */
static void end(const moved *m) {
    weft_error err = WEFT_ERROR_INIT;
    long long moves = 0, asked = 0;
    char names[200] = "", row[400];
    ck_assert_int_eq(table->synchronize(work.device, NULL, &err), WEFT_OK);
    read_documented();
    for (size_t i = 0; i < 3 && m->kernels[i] != NULL; i++) {
        const size_t n = strlen(names);
        const size_t at = strlen(measured);
        (void)snprintf(names + n, sizeof names - n, "%s`%s`", i == 0 ? "" : ", ", m->kernels[i]);
        (void)snprintf(measured + at, (1 << 16) - at, " %s ", m->kernels[i]);
        moves += emulator_bytes(m->kernels[i], &asked);
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
    emulator_count_bytes(0);
    begin();
}

#define MEASURE(kernel, args, expected)                                                                                \
    do {                                                                                                               \
        RUN(&work, kernel, &(args));                                                                                   \
        end(expected);                                                                                                 \
    } while (0)

#define LIMIT 1.1

/* ---- rows ---- */

/* Input of the norm: x, x and a residual operand, or the sum of an add directly before it. */
enum { ALONE, RESIDUAL, BEHIND_ADD };

/* x (rows, width) in bf16, read and written. */
static void check_norm(int64_t rows, int64_t width, int of, const char *shape) {
    weft_norm a = {.struct_size = sizeof a, .rows = rows, .width = width, .eps = 1e-5, .dtype = WEFT_BF16};
    const int64_t cells = rows * width * 2;
    const moved m = {{"norm_rows"}, shape, (of == ALONE ? 2 : 4) * cells + width * 4 + rows * 4, LIMIT};
    weft_add sum = {.struct_size = sizeof sum, .n = rows * width, .dtype = WEFT_BF16};
    a.x = cleared(cells), a.y = cleared(cells), a.gain = cleared(width * 4), a.rstd = cleared(rows * 4);
    if (of == RESIDUAL) a.residual = cleared(cells), a.sum = cleared(cells);
    if (of == BEHIND_ADD) {
        sum.a = cleared(cells), sum.b = cleared(cells), sum.y = a.x;
        RUN(&work, add, &sum);
    }
    MEASURE(norm, a, &m);
}
static void check_norm_backward(int64_t rows, int64_t width, const char *kernel, bool adds, double most,
                                const char *shape) {
    weft_norm a = {.struct_size = sizeof a, .rows = rows, .width = width, .eps = 1e-5, .dtype = WEFT_BF16};
    const int64_t cells = rows * width * 2;
    const moved m = {{kernel, "add_runs"}, shape, (adds ? 4 : 3) * cells + 2 * width * 4 + rows * 4, most};
    weft_error err = WEFT_ERROR_INIT;
    a.x = cleared(cells), a.dy = cleared(cells), a.dx = cleared(cells), a.gain = cleared(width * 4),
    a.rstd = cleared(rows * 4);
    a.dgain = cleared(width * 4);
    a.accumulate_dx = adds;
    a.workspace = workspace_of(table->norm_backward_workspace(work.device, &a));
    if (adds) ck_assert_int_eq(table->copy(work.device, NULL, a.dx, cleared(cells), cells, &err), WEFT_OK);
    MEASURE(norm_backward, a, &m);
}
TEST(norms) {
    check_norm(512, 2048, ALONE, "512 rows of 2,048");
    check_norm(512, 2048, RESIDUAL, "512 rows of 2,048, added to a residual");
    check_norm(512, 2048, BEHIND_ADD, "512 rows of 2,048, added to a residual");
    check_norm(8192, 64, ALONE, "8,192 rows of 64, as of heads");
    check_norm(128, 8192, ALONE, "128 rows of 8,192");
    check_norm_backward(256, 8192, "norm_rows_backward", false, LIMIT, "256 rows of 8,192");
    check_norm_backward(64, 16384, "norm_long_rows_backward", false, 3.4, "64 rows of 16,384");
    if (!is_full()) return;
    check_norm_backward(8192, 1024, "norm_rows_backward", false, LIMIT, "8,192 rows of 1,024");
    check_norm_backward(2048, 2048, "norm_rows_backward", true, LIMIT, "2,048 rows of 2,048, added to a copy");
}

TEST(rows_by_themselves) {
    const int64_t rows = 512, heads = 32, dim = 64, cells = rows * heads * dim * 2;
    weft_rope a = {
        .struct_size = sizeof a, .rows = rows, .heads = heads, .head_dim = dim, .table_rows = rows, .dtype = WEFT_BF16};
    const moved m = {{"rope_rows"}, "512 positions of 32 heads of 64", 2 * cells + rows * 4 + rows * dim * 4, LIMIT};
    a.x = cleared(cells), a.y = cleared(cells), a.positions = ids(rows, 1), a.table = cleared(rows * dim * 4);
    MEASURE(rope, a, &m);
}

TEST(sums_over_rows) {
    const int64_t rows = 2048, width = 2048;
    weft_sum_rows a = {.struct_size = sizeof a, .rows = rows, .width = width, .dtype = WEFT_BF16};
    const moved m = {{"sum_run", "add_runs"}, "2,048 rows of 2,048", rows * width * 2 + width * 4, LIMIT};
    a.x = cleared(rows * width * 2), a.out = cleared(width * 4);
    a.workspace = workspace_of(table->sum_rows_workspace(work.device, &a));
    MEASURE(sum_rows, a, &m);
}

/* ---- element by element ---- */

TEST(elements) {
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
    const moved shifted = {{"move"}, "65,536 bytes onto themselves", 2 << 16, LIMIT};
    weft_ref x, y;
    f.x = cleared(2 * n), f.up = cleared(2 * n), f.y = cleared(2 * n);
    MEASURE(activation, f, &forward);
    f.x = cleared(2 * n), f.up = cleared(2 * n), f.dy = cleared(2 * n), f.dx = cleared(2 * n), f.dup = cleared(2 * n);
    f.y = (weft_ref){NULL, 0};
    MEASURE(activation_backward, f, &backward);
    s.x = cleared(2 * n), s.y = cleared(2 * n);
    MEASURE(scale, s, &scaled);
    a.a = cleared(2 * n), a.b = cleared(2 * n), a.y = cleared(2 * n);
    MEASURE(add, a, &added);
    x = cleared(4 * n), y = cleared(2 * n);
    ck_assert_int_eq(table->convert(work.device, NULL, y, WEFT_BF16, x, WEFT_F32, n, &err), WEFT_OK);
    end(&rounded_down);
    x = cleared(4 * n);
    ck_assert_int_eq(table->fill(work.device, NULL, x, 7, n, &err), WEFT_OK);
    end(&filled);
    x = cleared(n);
    y = (weft_ref){x.buffer, x.offset + 4096};
    ck_assert_int_eq(table->copy(work.device, NULL, y, x, 1 << 16, &err), WEFT_OK);
    end(&shifted);
}

WEFT_HP(moments_hp, float lr;)
WEFT_ELEMENTWISE(moments_update, moments_hp, 2, s0 += g; s1 += g * g; w -= hp->lr * range->lr_scale * s0 / (1.0f + s1);)

static void check_update(int32_t weight, int32_t state, int32_t copy, const char *shape) {
    const int64_t n = 1 << 19, bytes = weft_dtype_span(weight, n), state_bytes = weft_dtype_span(state, n);
    const weft_range range = {sizeof range, 0, 0, n, 1.0f, 1.0f};
    weft_update_region region = {.struct_size = sizeof region,
                                 .n = n,
                                 .n_ranges = 1,
                                 .range_stride = sizeof range,
                                 .weight_dtype = weight,
                                 .state_dtypes = {state, state},
                                 .copy_dtype = copy};
    weft_update u = {.struct_size = sizeof u,
                     .kernel = &moments_update,
                     .regions = &region,
                     .n_regions = 1,
                     .region_stride = sizeof region};
    const moved m = {{"weft_update"}, shape, 2 * bytes + 4 * n + 4 * state_bytes + weft_dtype_span(copy, n), LIMIT};
    region.weight = cleared(bytes), region.gradient = cleared(4 * n);
    region.states[0] = cleared(state_bytes), region.states[1] = cleared(state_bytes);
    region.ranges = put(&work, &range, sizeof range);
    if (copy != 0) region.copy = cleared(weft_dtype_span(copy, n));
    u.hp = cleared(64), u.coefficient = cleared(4), u.skip = cleared(4);
    MEASURE(update, u, &m);
}
TEST(updates) {
    check_update(WEFT_F32, WEFT_F32, WEFT_BF16, "524,288 elements, two states, fp32, a copy in bf16");
    check_update(WEFT_F32, WEFT_F32, 0, "524,288 elements, two states, fp32");
    check_update(WEFT_BF16, WEFT_BF16, 0, "524,288 elements, two states");
    check_update(WEFT_F32, WEFT_DYN8X256, 0, "524,288 elements, fp32, two states of 8 bits");
}

/* ---- tables ---- */

TEST(look_ups) {
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
    e.ids = ids(rows, 3), e.table = cleared(vocab * width * 2), e.y = cleared(rows * width * 2);
    MEASURE(embedding, e, &forward);
    e.ids = ids(rows, 3), e.dy = cleared(rows * width * 2), e.dtable = cleared(vocab * width * 4);
    e.workspace = workspace_of(table->embedding_backward_workspace(work.device, &e));
    MEASURE(embedding_backward, e, &backward);
}

static void check_unpack(int32_t dtype, const char *shape) {
    const int64_t n = 1024, k = 1024, bytes = weft_dtype_span(dtype, n * k);
    weft_matmul a = {.struct_size = sizeof a, .m = 16, .n = n, .k = k, .lda = k, .ldb = k, .ldc = n};
    const moved m = {{"unpack"}, shape, bytes + n * k * 2, LIMIT};
    a.dtype_a = a.dtype_c = WEFT_BF16, a.dtype_b = dtype, a.transpose_b = 1;
    a.a = cleared(16 * k * 2), a.b = cleared(bytes), a.c = cleared(16 * n * 2);
    a.workspace = workspace_of(table->matmul_workspace(work.device, &a));
    MEASURE(matmul, a, &m);
}
TEST(packed_matrices) {
    check_unpack(WEFT_I8X64, "1,024 x 1,024, int8");
    check_unpack(WEFT_NF4, "1,024 x 1,024, nf4");
    check_unpack(WEFT_F8X128, "1,024 x 1,024, fp8");
    check_unpack(WEFT_NF4X64, "1,024 x 1,024, nf4x64");
}

TEST(a_bias_in_the_place_of_a_product) {
    const int64_t m = 64, n = 1024, k = 0;
    weft_matmul a = {.struct_size = sizeof a, .m = m, .n = n, .k = k, .lda = 1, .ldb = 1, .ldc = n, .has_bias = 1};
    const moved filled = {{"fill_rows"}, "64 rows of 1,024", m * n * 2 + n * 4, LIMIT};
    a.dtype_a = a.dtype_b = a.dtype_c = WEFT_BF16, a.transpose_b = 1;
    a.c = cleared(m * n * 2), a.bias = cleared(n * 4);
    a.workspace = workspace_of(table->matmul_workspace(work.device, &a));
    MEASURE(matmul, a, &filled);
}

/* ---- adapters ---- */

TEST(factors_of_columns) {
    const int64_t rows = 512, width = 2048, cells = rows * width * 2;
    weft_multiply a = {.struct_size = sizeof a, .rows = rows, .width = width, .parts = width, .dtype = WEFT_BF16};
    const moved scaled = {{"scale_by"}, "512 rows of 2,048, a factor to each column", 2 * cells + width * 4, LIMIT};
    const moved summed = {
        {"sum_products", "add_parts"}, "the same, the factors' gradient", 2 * cells + width * 4, LIMIT};
    a.x = cleared(cells), a.y = cleared(cells), a.by = cleared(width * 4);
    MEASURE(multiply, a, &scaled);
    a.x = cleared(cells), a.dy = cleared(cells), a.by = cleared(width * 4), a.dby = cleared(width * 4);
    a.y = (weft_ref){NULL, 0};
    a.workspace = workspace_of(table->multiply_backward_workspace(work.device, &a));
    MEASURE(multiply_backward, a, &summed);
}

TEST(what_is_dropped) {
    const int64_t batch = 2, row = 256 * 1024;
    weft_dropout a = {.struct_size = sizeof a, .batch = batch, .row = row, .seed = 1, .p = 0.1, .dtype = WEFT_BF16};
    const moved dropped = {{"drop"}, "2 rows of 262,144", 4 * batch * row, LIMIT};
    a.x = cleared(2 * batch * row), a.y = cleared(2 * batch * row), a.first = cleared(8);
    MEASURE(dropout, a, &dropped);
}

static void check_norms_of_sums(int32_t dtype_w, const char *shape) {
    const int64_t rows = 512, width = 2048, rank = 16, w = weft_dtype_span(dtype_w, rows * width);
    weft_row_norms a = {.struct_size = sizeof a,
                        .rows = rows,
                        .width = width,
                        .rank = rank,
                        .factor = 1.0,
                        .dtype = WEFT_BF16,
                        .dtype_w = dtype_w};
    const moved m = {{"norm_rows_of_sum"}, shape, w + (width + rows) * rank * 2 + rows * 4, LIMIT};
    a.w = cleared(w), a.down = cleared(rank * width * 2), a.up = cleared(rows * rank * 2), a.out = cleared(rows * 4);
    MEASURE(row_norms, a, &m);
}
TEST(norms_of_rows_of_a_sum) {
    check_norms_of_sums(WEFT_BF16, "512 rows of 2,048, rank 16");
    check_norms_of_sums(WEFT_NF4, "512 rows of 2,048, nf4, rank 16");
    if (!is_full()) return;
    check_norms_of_sums(WEFT_I8X64, "512 rows of 2,048, int8, rank 16");
    check_norms_of_sums(WEFT_F8X128, "512 rows of 2,048, fp8, rank 16");
}

TEST(a_prefix) {
    enum { PLACES = 32, OF_PREFIX = 8, OF_KEYS = 2, WIDTH = 64 };
    const int64_t length = 512, q = length * OF_PREFIX * WIDTH * 2, kv = (int64_t)PLACES * OF_KEYS * WIDTH * 2;
    const int64_t lse = length * OF_PREFIX * 4, pairs = length * OF_PREFIX * PLACES * 4;
    weft_prefix a = {.struct_size = sizeof a,
                     .batch = 1,
                     .length = length,
                     .heads = OF_PREFIX,
                     .kv_heads = OF_KEYS,
                     .head_dim = WIDTH,
                     .places = PLACES,
                     .scale = 0.125,
                     .dtype = WEFT_BF16,
                     .join = 1};
    const moved attended = {{"attend"}, "512 positions, 8 heads of 64, 2 of 32 keys", 3 * q + 2 * kv + 2 * lse, LIMIT};
    const moved queries = {{"query_gradients"}, "the same", 4 * q + 2 * kv + lse + 2 * pairs, LIMIT};
    const moved keys = {{"key_gradients", "add_key_runs"}, "the same", 2 * q + 2 * kv + 2 * pairs, 2.0};
    const moved *const parts[] = {&queries, &keys};
    a.q = cleared(q), a.k = cleared(kv), a.v = cleared(kv), a.o = cleared(q), a.lse = cleared(lse);
    MEASURE(prefix, a, &attended);
    for (int i = 0; i < 2; i++) {
        a.q = cleared(q), a.k = cleared(kv), a.v = cleared(kv), a.o = cleared(q), a.lse = cleared(lse);
        a.d_o = cleared(q), a.dq = cleared(q), a.dk = cleared(kv), a.dv = cleared(kv);
        a.workspace = workspace_of(table->prefix_backward_workspace(work.device, &a));
        MEASURE(prefix_backward, a, parts[i]);
    }
}

/* ---- gradient norm ---- */

TEST(squares_of_a_gradient) {
    enum { TENSORS = 8 };
    const int64_t each = 1 << 17, n = TENSORS * each;
    weft_extent rows[TENSORS];
    weft_square_sum s = {
        .struct_size = sizeof s, .n = n, .n_extents = TENSORS, .extent_stride = sizeof rows[0], .dtype = WEFT_F32};
    const moved squares = {{"count_units", "sum_units", "sum_extents"}, "8 tensors of 131,072", 4 * n, LIMIT};
    for (int64_t i = 0; i < TENSORS; i++) rows[i] = (weft_extent){sizeof rows[0], 0, i * each, each, i};
    s.x = cleared(4 * n), s.out = cleared(8 * TENSORS), s.extents = put(&work, rows, sizeof rows);
    s.workspace = workspace_of(table->square_sum_workspace(work.device, &s));
    MEASURE(square_sum, s, &squares);
}

TEST(a_norm_from_squares) {
    const int64_t tensors = 10000;
    weft_clip a = {.struct_size = sizeof a, .n = tensors, .clip = 1.0};
    const moved clipped = {{"clip_norm"}, "10,000 tensors", tensors * 8, LIMIT};
    a.square_sums = cleared(tensors * 8), a.count = cleared(8), a.norm = cleared(8), a.skip = cleared(4);
    a.coefficient = cleared(4);
    MEASURE(clip, a, &clipped);
}

/* ---- the head ---- */

/* The head's own kernels; the library computes matmuls. Logits are fp32, their bf16 gradient overwrites them. */
static void check_losses(int64_t vocab, double most, const char *shape) {
    const int64_t rows = 32, width = 64;
    weft_head h = {.struct_size = sizeof h, .rows = rows, .width = width, .vocab = vocab, .dtype = WEFT_BF16};
    const moved row_losses = {{"row_losses"}, shape, rows * (vocab * 6 + 16), most};
    h.x = cleared(rows * width * 2), h.w = cleared(vocab * width * 2), h.targets = ids(rows, 1);
    h.weights = ones(rows), h.loss = cleared(8), h.dx = cleared(rows * width * 2);
    h.workspace = workspace_of(table->head_loss_grad_workspace(work.device, &h));
    MEASURE(head_loss_grad, h, &row_losses);
}
TEST(losses) {
    check_losses(32000, LIMIT, "32 rows of 32,000 logits");
    if (is_full()) check_losses(128256, 1.5, "32 rows of 128,256 logits");
}

/* Rows without weight: no row has a loss, and dx is cleared. */
TEST(rows_that_do_not_count) {
    const int64_t rows = 1024, width = 512, vocab = 64;
    weft_head h = {.struct_size = sizeof h, .rows = rows, .width = width, .vocab = vocab, .dtype = WEFT_BF16};
    const moved rows_cleared = {{"clear_rows"}, "1,024 rows of 512", rows * (width * 2 + 4), LIMIT};
    const moved added = {{"add_losses"}, "1,024 rows", rows * 8, LIMIT};
    const moved *const parts[] = {&rows_cleared, &added};
    for (int i = 0; i < 2; i++) {
        h.x = cleared(rows * width * 2), h.w = cleared(vocab * width * 2), h.targets = ids(rows, 0);
        h.weights = cleared(rows * 4), h.loss = cleared(8), h.dx = cleared(rows * width * 2);
        h.workspace = workspace_of(table->head_loss_grad_workspace(work.device, &h));
        MEASURE(head_loss_grad, h, parts[i]);
    }
}

TEST(rows_of_the_head) {
    const int64_t rows = 512, width = 2048, vocab = 64;
    weft_head h = {.struct_size = sizeof h, .rows = rows, .width = width, .vocab = vocab, .dtype = WEFT_BF16};
    const moved taken = {{"take_rows_that_count"}, "512 rows of 2,048", rows * (width * 4 + 4), LIMIT};
    h.x = cleared(rows * width * 2), h.w = cleared(vocab * width * 2), h.targets = ids(rows, 0);
    h.weights = ones(rows), h.loss = cleared(8);
    h.workspace = workspace_of(table->head_loss_workspace(work.device, &h));
    MEASURE(head_loss, h, &taken);
}

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

/* A device with one more key. */
static weft_device *device_with(const char *key) {
    char *const keys = strdup(getenv("WEFT_TEST_KEYS")), more[4400];
    weft_device *device = NULL;
    (void)snprintf(more, sizeof more, "%s %s", keys, key);
    (void)setenv("WEFT_TEST_KEYS", more, 1);
    device = make_device(1, 0);
    (void)setenv("WEFT_TEST_KEYS", keys, 1);
    free(keys);
    return device;
}

/* The kernels for any GPU, and those of compute capability 9.0. */
TESTS(attentions, 2) {
    const int64_t length = 512, q = length * HEADS * DIM * 2, kv = length * KV_HEADS * DIM * 2;
    const int64_t numbers_of_rows = length * HEADS * 4, starts = length * 4;
    weft_attention a = attention_of(length);
    const moved forward = {{_i == 0 ? "attention_forward" : "attention_forward_hopper"},
                           "512 positions, 8 heads of 64, 2 KV heads",
                           2 * q + 2 * kv + numbers_of_rows + starts,
                           LIMIT};
    const moved delta = {{"attention_delta"}, "the same", 2 * q + numbers_of_rows, LIMIT};
    const moved queries = {{_i == 0 ? "attention_backward_queries" : "attention_backward_queries_hopper"},
                           "the same",
                           3 * q + 2 * kv + 2 * numbers_of_rows + starts,
                           LIMIT};
    const moved keys = {{_i == 0 ? "attention_backward_keys" : "attention_backward_keys_hopper"},
                        "the same",
                        2 * q + 4 * kv + 2 * numbers_of_rows + starts,
                        LIMIT};
    const moved *const parts[] = {&queries, &keys, &delta};
    weft_device *const device = device_with(_i == 0 ? "attention=split" : "attention=auto");
    work.device = device;
    a.q = cleared(q), a.k = cleared(kv), a.v = cleared(kv), a.o = cleared(q), a.lse = cleared(numbers_of_rows);
    a.starts = ids(length, 0);
    a.workspace = workspace_of(table->attention_workspace(device, &a));
    MEASURE(attention, a, &forward);
    for (int i = 0; i < 3 - _i; i++) {
        work.device = device;
        a.q = cleared(q), a.k = cleared(kv), a.v = cleared(kv), a.o = cleared(q), a.lse = cleared(numbers_of_rows);
        a.starts = ids(length, 0), a.d_o = cleared(q), a.dq = cleared(q), a.dk = cleared(kv), a.dv = cleared(kv);
        a.workspace = workspace_of(table->attention_backward_workspace(device, &a));
        MEASURE(attention_backward, a, parts[i]);
    }
    table->destroy(device);
}

/* The kernel after cuDNN's attention, on a separate device; here no position sees a key. */
TEST(blind_places) {
    const int64_t length = 512, q = length * HEADS * DIM * 2, kv = length * KV_HEADS * DIM * 2;
    const int64_t numbers_of_rows = length * HEADS * 4, starts = length * 4;
    const moved blind = {{"attention_blind"}, "the same, without visible keys", q + numbers_of_rows + starts, LIMIT};
    int32_t nowhere[512];
    weft_attention a = attention_of(length);
    weft_device *const device = device_with("attention=cudnn");
    for (int i = 0; i < 512; i++) nowhere[i] = 512;
    work.device = device;
    a.q = cleared(q), a.k = cleared(kv), a.v = cleared(kv), a.o = cleared(q), a.lse = cleared(numbers_of_rows);
    a.starts = put(&work, nowhere, starts);
    a.workspace = workspace_of(table->attention_workspace(device, &a));
    MEASURE(attention, a, &blind);
    table->destroy(device);
}

TEST(a_token) {
    const int64_t past = 1000, cache = 1024, row = KV_HEADS * DIM * 2, q = HEADS * DIM * 2;
    weft_attention a = attention_of(1);
    const moved token = {{"attention_decode"}, "a token after 1,000", 2 * q + 2 * (past + 1) * row + 4, LIMIT};
    a.cache_rows = cache, a.q = cleared(q), a.o = cleared(q), a.k = cleared(cache * row), a.v = cleared(cache * row);
    a.new_k = cleared(row), a.new_v = cleared(row), a.starts = ids(1, 0);
    a.past = put(&work, &past, 8);
    a.workspace = workspace_of(table->attention_workspace(work.device, &a));
    MEASURE(attention, a, &token);
}

/* New keys and values of many sequences. */
TEST(what_a_cache_takes_in) {
    const int64_t batch = 32, cache = 4, row = KV_HEADS * DIM * 2, q = HEADS * DIM * 2;
    weft_attention a = attention_of(1);
    const moved taken = {{"attention_append"}, "32 rows, 2 heads of 64", 4 * batch * row, LIMIT};
    a.batch = batch;
    a.cache_rows = cache, a.q = cleared(batch * q), a.o = cleared(batch * q), a.k = cleared(batch * cache * row);
    a.v = cleared(batch * cache * row), a.new_k = cleared(batch * row), a.new_v = cleared(batch * row);
    a.starts = ids(batch, 0), a.past = cleared(8);
    a.workspace = workspace_of(table->attention_workspace(work.device, &a));
    MEASURE(attention, a, &taken);
}

/* ---- completeness ---- */

/* Extracts the kernel's name after `__global__` and its attributes, or the part of it outside a macro. */
static void kernel_name(char name[64], const char *at) {
    static const char bounds[] = "__launch_bounds__(";
    size_t n = 0;
    for (;;) {
        at += strspn(at, " \n\\\"");
        if (strncmp(at, "void ", 5) == 0) at += 5;
        else if (strncmp(at, "n\"", 2) == 0) at += 2; /* a line end in a generated source */
        else if (strncmp(at, bounds, sizeof bounds - 1) == 0) {
            int depth = 0;
            for (at += sizeof bounds - 2; depth > 0 || *at == '('; at++) depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
        } else break;
    }
    n = strspn(at, "abcdefghijklmnopqrstuvwxyz_0123456789");
    ck_assert_msg(n > 0 && n < 64, "no name behind __global__: %.60s", at);
    (void)snprintf(name, 64, "%.*s", (int)n, at);
}

/* Checks each `__global__` of a source, except in comment lines that start with a star. */
static int check_source(const char *path) {
    static const char word[] = "__global__";
    char *text = read_bytes(path, NULL);
    int n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        const char *line = at;
        char name[64], wanted[70];
        while (line > text && line[-1] != '\n') line--;
        if (strncmp(line, " *", 2) == 0) continue;
        kernel_name(name, at + sizeof word - 1);
        (void)snprintf(wanted, sizeof wanted, name[strlen(name) - 1] == '_' ? " %s" : " %s ", name);
        ck_assert_msg(strstr(measured, wanted) != NULL, "%s: kernel %s has no row: nobody knows what it moves", path,
                      name);
        n++;
    }
    free(text);
    return n;
}

/* Runs last. */
TEST(every_kernel_has_a_row) {
    char pattern[4096];
    glob_t files = {0};
    int kernels = 0;
    (void)snprintf(pattern, sizeof pattern, "%s/plugins/device/cuda/*", getenv("WEFT_SOURCE"));
    ck_assert_int_eq(glob(pattern, 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) kernels += check_source(files.gl_pathv[i]);
    globfree(&files);
    ck_assert_int_ge(kernels, 42);
}

static void setup(void) {
    load_plugin();
    begin();
}

int main(void) {
    TCase *tests = tcase_create("bytes");
    tcase_add_unchecked_fixture(tests, setup, unload_plugin);
    tcase_set_timeout(tests, 600);
    return run_tests_in_one_process(tests);
}
