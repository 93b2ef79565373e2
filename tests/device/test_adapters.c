/* The adapter kernels (factors, dropout, norms of rows, attention to a prefix) in fp32, bf16 and fp16. The reference
 * device computes their formulas in fp64. */
#include "device/fixture.h"

#include <weft/blocks.h>

#include "reference_device.h"

enum { MOST_OPERANDS = 14 };

/* An operand of a call: its initial contents, and whether it is a result. */
typedef struct operand {
    const char *name;
    size_t field;
    const void *data; /* NULL: NaN. In fp32, except WEFT_I64 and packed types */
    int64_t n;
    int32_t dtype;
    bool result;
} operand;

typedef weft_status run_fn(const weft_device_plugin *kernels, weft_device *device, const void *args, weft_error *err);
typedef int64_t room_fn(const weft_device_plugin *kernels, const weft_device *device, const void *args);

/* A kernel call for any device. */
typedef struct call {
    const char *name;
    const void *args;
    size_t size, workspace; /* of args; offset of the field, 0: no such field */
    run_fn *run;
    room_fn *room;
    operand operands[MOST_OPERANDS];
    int n;
} call;

#define KERNEL(name, type)                                                                                             \
    static weft_status run_##name(const weft_device_plugin *k, weft_device *d, const void *a, weft_error *err) {       \
        return k->name(d, NULL, (const type *)a, err);                                                                 \
    }
#define ROOM(name, type)                                                                                               \
    static int64_t room_##name(const weft_device_plugin *k, const weft_device *d, const void *a) {                     \
        return k->name##_workspace(d, (const type *)a);                                                                \
    }
KERNEL(multiply, weft_multiply)
KERNEL(multiply_backward, weft_multiply)
KERNEL(dropout, weft_dropout)
KERNEL(row_norms, weft_row_norms)
KERNEL(prefix, weft_prefix)
KERNEL(prefix_backward, weft_prefix)
ROOM(multiply_backward, weft_multiply)
ROOM(row_norms, weft_row_norms)
ROOM(prefix, weft_prefix)
ROOM(prefix_backward, weft_prefix)

static void add_operand(call *c, const char *name, size_t field, const void *data, int64_t n, int32_t dtype,
                        bool result) {
    const operand o = {name, field, data, n, dtype, result};
    ck_assert_int_lt(c->n, MOST_OPERANDS);
    c->operands[c->n++] = o;
}
#define IN(c, type, field, data, n, dtype)  add_operand(c, #field, offsetof(type, field), data, n, dtype, false)
#define OUT(c, type, field, data, n, dtype) add_operand(c, #field, offsetof(type, field), data, n, dtype, true)

#define CALL(of, with)                                                                                                 \
    { .name = #of, .args = &(with), .size = sizeof(with), .run = run_##of }
#define CALL_WITH_ROOM(of, type, with)                                                                                 \
    {                                                                                                                  \
        .name = #of, .args = &(with), .size = sizeof(with), .run = run_##of, .room = room_##of,                        \
        .workspace = offsetof(type, workspace)                                                                         \
    }

static int64_t operand_bytes(const operand *o) {
    return weft_dtype_span(o->dtype, o->n);
}

/* ---- on the device under test ---- */

static weft_ref put_operand(run *r, const operand *o) {
    if (o->dtype == WEFT_F32 || o->dtype == WEFT_BF16 || o->dtype == WEFT_F16)
        return put_cells(r, o->data, o->n, o->dtype);
    return put_at(r, o->data, operand_bytes(o), r->shift / 8 * 8);
}

/* Puts the operands and the workspace, and refers to them in a copy of the arguments. */
static void place(run *r, const call *c, char args[sizeof(weft_prefix)], weft_ref refs[MOST_OPERANDS]) {
    memcpy(args, c->args, c->size);
    for (int i = 0; i < c->n; i++) {
        refs[i] = put_operand(r, &c->operands[i]);
        memcpy(args + c->operands[i].field, &refs[i], sizeof refs[i]);
    }
    if (c->room != NULL) {
        const weft_ref workspace = put_workspace(r, c->room(table, r->device, args));
        memcpy(args + c->workspace, &workspace, sizeof workspace);
    }
}

static void device_run(run *r, const void *data) {
    const call *c = data;
    weft_error err = WEFT_ERROR_INIT;
    char args[sizeof(weft_prefix)];
    weft_ref refs[MOST_OPERANDS];
    place(r, c, args, refs);
    ck_assert_msg(c->run(table, r->device, args, &err) == WEFT_OK, "%s: %s", c->name, err.text);
    for (int i = 0; i < c->n; i++)
        if (c->operands[i].result) get_cells(r, refs[i], c->operands[i].n, c->operands[i].dtype);
}

/* ---- on the reference device, always in fp32: its operands are exact in the type ---- */

static weft_ref reference_put(const void *data, int64_t bytes) {
    weft_error err = WEFT_ERROR_INIT;
    weft_ref ref = {NULL, 0};
    ck_assert_int_eq(weft_reference_device.alloc(NULL, &ref.buffer, bytes, &err), WEFT_OK);
    if (data != NULL) memcpy(weft_reference_device.host_view(NULL, ref), data, (size_t)bytes);
    return ref;
}

static int32_t wide(int32_t dtype) {
    return dtype == WEFT_BF16 || dtype == WEFT_F16 ? WEFT_F32 : dtype;
}

/* Returns the results one after another, as doubles. dtype: offset of the type field in the arguments, set to fp32. */
static double *reference_run(const call *c, size_t dtype) {
    weft_error err = WEFT_ERROR_INIT;
    const int32_t f32 = WEFT_F32;
    char args[sizeof(weft_prefix)];
    weft_ref refs[MOST_OPERANDS + 1] = {{NULL, 0}};
    double *out = NULL;
    int64_t n = 0;
    memcpy(args, c->args, c->size);
    memcpy(args + dtype, &f32, sizeof f32);
    for (int i = 0; i < c->n; i++) {
        const operand *o = &c->operands[i];
        refs[i] = reference_put(o->data, weft_dtype_span(wide(o->dtype), o->n));
        memcpy(args + o->field, &refs[i], sizeof refs[i]);
    }
    if (c->room != NULL) {
        refs[c->n] = reference_put(NULL, c->room(&weft_reference_device, NULL, args));
        memcpy(args + c->workspace, &refs[c->n], sizeof refs[c->n]);
    }
    ck_assert_msg(c->run(&weft_reference_device, NULL, args, &err) == WEFT_OK, "%s", err.text);
    for (int i = 0; i < c->n; i++) n += c->operands[i].result ? c->operands[i].n : 0;
    out = zeros(n);
    n = 0;
    for (int i = 0; i < c->n; i++)
        for (int64_t j = 0; c->operands[i].result && j < c->operands[i].n; j++)
            out[n++] = (double)((const float *)weft_reference_device.host_view(NULL, refs[i]))[j];
    for (int i = 0; i <= c->n; i++) weft_reference_device.release(NULL, refs[i].buffer);
    return out;
}

/* Checks the device's results against the reference. exact: same bits, in fp32. */
static void expect_alike(const call *c, size_t dtype, double limit, bool exact) {
    float *got = every_way(device_run, c, c->name);
    double *want = reference_run(c, dtype);
    int64_t at = 0;
    for (int i = 0; i < c->n; i++) {
        const operand *o = &c->operands[i];
        char name[96];
        if (!o->result) continue;
        (void)snprintf(name, sizeof name, "%s: %s", c->name, o->name);
        for (int64_t j = 0; exact && j < o->n; j++)
            EXPECT(got[at + j] == rounded((float)want[at + j], o->dtype), "%s[%lld] is %.9g and should be %.9g", name,
                   (long long)j, (double)got[at + j], want[at + j]);
        if (!exact)
            expect_cells(name, got + at, want + at, o->n, o->dtype, limit, 0.05); /* not smaller if values cancel */
        at += o->n;
    }
    free(got);
    free(want);
}

/* Checks that each operand moved beyond its buffer is rejected. */
static void expect_bounds(const call *c, const char *kernel) {
    run r = {.device = devices[0]};
    char args[sizeof(weft_prefix)];
    weft_ref refs[MOST_OPERANDS];
    weft_error err = WEFT_ERROR_INIT;
    place(&r, c, args, refs);
    for (int i = 0; i < c->n; i++) {
        weft_ref moved = refs[i];
        moved.offset += CANARY + 8;
        memcpy(args + c->operands[i].field, &moved, sizeof moved);
        ck_assert_msg(c->run(table, r.device, args, &err) == WEFT_E_HOST, "%s reaches beyond %s", kernel,
                      c->operands[i].name);
        ck_assert_msg(strstr(err.text, kernel) != NULL && strstr(err.text, c->operands[i].name) != NULL, "%s",
                      err.text);
        memcpy(args + c->operands[i].field, &refs[i], sizeof refs[i]);
    }
    end_run(&r);
}

/* ---- factors ---- */

#define FREE(x) free((void *)(uintptr_t)(x))

static void factors_are_judged(int64_t rows, int64_t width, int64_t parts, bool over, int32_t dtype, bool adds) {
    const int64_t n = rows * width;
    const bool shifts = over && parts == width;
    weft_multiply args = {.struct_size = sizeof args, .rows = rows, .width = width, .parts = parts, .dtype = dtype};
    float *x = numbers_of(dtype, n, 2), *dy = numbers_of(dtype, n, 1), *dx = numbers_of(dtype, n, 1);
    float *by = numbers(parts, 1), *norms = numbers(parts, 1), *dby = numbers(parts, 1), *shift = numbers(parts, 1);
    call forward = CALL(multiply, args);
    call back = CALL_WITH_ROOM(multiply_backward, weft_multiply, args);
    args.accumulate_dx = args.accumulate_dby = adds;
    for (int64_t i = 0; i < parts; i++) norms[i] = fabsf(norms[i]) + 0.5f;
    for (int i = 0; i < 2; i++) {
        call *c = i == 0 ? &forward : &back;
        IN(c, weft_multiply, x, x, n, dtype);
        IN(c, weft_multiply, by, by, parts, WEFT_F32);
        if (over) IN(c, weft_multiply, over, norms, parts, WEFT_F32);
        if (shifts) IN(c, weft_multiply, shift, shift, parts, WEFT_F32);
    }
    OUT(&forward, weft_multiply, y, NULL, n, dtype);
    IN(&back, weft_multiply, dy, dy, n, dtype);
    OUT(&back, weft_multiply, dx, adds ? dx : NULL, n, dtype);
    OUT(&back, weft_multiply, dby, adds ? dby : NULL, parts, WEFT_F32);
    expect_alike(&forward, offsetof(weft_multiply, dtype), 2e-7, false);
    expect_alike(&back, offsetof(weft_multiply, dtype), 2e-6, false);
    if (rows > 0 && !adds) expect_bounds(&forward, "multiply");
    if (rows > 0 && !adds) expect_bounds(&back, "multiply_backward");
    FREE(x), FREE(dy), FREE(dx), FREE(by), FREE(norms), FREE(dby), FREE(shift);
}

TESTS(factors_scale_channels_heads_or_all, n_types()) {
    const int32_t dtype = dtypes[_i];
    factors_are_judged(37, 40, 40, false, dtype, false);
    factors_are_judged(130, 65, 65, true, dtype, true);
    factors_are_judged(33, 48, 6, false, dtype, false);
    factors_are_judged(70, 31, 1, true, dtype, true);
    factors_are_judged(1, 1, 1, false, dtype, false);
    if (is_full() || is_cpu()) factors_are_judged(1100, 257, 257, false, dtype, false);
}

TEST(factors_that_do_not_fit_are_refused) {
    const weft_multiply args = {.struct_size = sizeof args, .rows = 2, .width = 10, .parts = 3, .dtype = WEFT_F32};
    REJECTS(&(run){.device = devices[0]}, multiply, &args, WEFT_E_HOST,
            "10 elements cannot be split into 3 equal chunks");
}

/* ---- dropout ---- */

static void dropout_is_judged(int64_t batch, int64_t row, double p, int64_t first, int32_t dtype, bool adds) {
    const int64_t n = batch * row;
    const weft_dropout args = {.struct_size = sizeof args,
                               .batch = batch,
                               .row = row,
                               .seed = 0x123456789abcdefu,
                               .p = p,
                               .site = 0xabcdef,
                               .accumulate = adds,
                               .dtype = dtype};
    float *x = numbers_of(dtype, n, 2), *y = numbers_of(dtype, n, 2);
    call c = CALL(dropout, args);
    IN(&c, weft_dropout, x, x, n, dtype);
    IN(&c, weft_dropout, first, &first, 1, WEFT_I64);
    OUT(&c, weft_dropout, y, adds ? y : NULL, n, dtype);
    expect_alike(&c, offsetof(weft_dropout, dtype), 0, true);
    if (!adds) expect_bounds(&c, "dropout");
    FREE(x), FREE(y);
}

TESTS(dropout_draws_what_the_header_says, n_types()) {
    const int32_t dtype = dtypes[_i];
    dropout_is_judged(3, 1000, 0.1, 5, dtype, false);
    dropout_is_judged(2, 257, 0.5, ((int64_t)1 << 33) + 7, dtype, true);
    dropout_is_judged(1, 3, 0.75, 0, dtype, false);
    if (is_full() || is_cpu()) dropout_is_judged(2, 40001, 0.05, 123, dtype, false);
}

typedef struct drops {
    int64_t batch, row, first;
    const float *x;
} drops;

static void drops_run(run *r, const void *data) {
    const drops *t = data;
    weft_dropout args = {.struct_size = sizeof args,
                         .batch = t->batch,
                         .row = t->row,
                         .seed = 3,
                         .p = 0.3,
                         .site = 9,
                         .dtype = WEFT_F32};
    args.x = put_floats(r, t->x, t->batch * t->row);
    args.first = put_at(r, &t->first, 8, r->shift / 8 * 8);
    args.y = put_floats(r, NULL, t->batch * t->row);
    RUN(r, dropout, &args);
    get_floats(r, args.y, t->batch * t->row);
}

/* Four rows in one micro-batch, or in two of two, drop the same elements, approximately as many as p says. */
TEST(what_is_dropped_does_not_depend_on_micro_batches) {
    enum { ROW = 700 };
    float ones[4 * ROW];
    const drops all = {4, ROW, 40, ones}, low = {2, ROW, 40, ones}, high = {2, ROW, 42, ones};
    float *whole = NULL, *first = NULL, *second = NULL;
    int kept = 0;
    for (int i = 0; i < 4 * ROW; i++) ones[i] = 1.0f;
    whole = every_way(drops_run, &all, "dropout");
    first = every_way(drops_run, &low, "dropout");
    second = every_way(drops_run, &high, "dropout");
    ck_assert_int_eq(memcmp(whole, first, 2 * ROW * sizeof *whole), 0);
    ck_assert_int_eq(memcmp(whole + 2 * ROW, second, 2 * ROW * sizeof *whole), 0);
    ck_assert_int_ne(memcmp(first, second, 2 * ROW * sizeof *whole), 0);
    for (int i = 0; i < 4 * ROW; i++) kept += whole[i] != 0.0f;
    ck_assert_int_ge(kept, 1850); /* of 1960, with a standard deviation of 24 */
    ck_assert_int_le(kept, 2070);
    FREE(whole), FREE(first), FREE(second);
}

/* ---- row norms ---- */

/* Packs n numbers into blocks, which the caller frees. */
static void *packed_of(int32_t dtype, const float *x, int64_t n) {
    const int64_t block = weft_dtype_block(dtype), bytes = weft_dtype_bytes(dtype);
    char *out = calloc((size_t)(n / block + 1), (size_t)bytes);
    for (int64_t i = 0; i < n; i += block) {
        void *const to = out + i / block * bytes;
        const int some = (int)(n - i < block ? n - i : block);
        if (dtype == WEFT_I8X64) weft_i8x64_pack(to, x + i);
        if (dtype == WEFT_NF4) weft_nf4_pack(to, x + i, some, 0.01f, 0.15f);
        if (dtype == WEFT_NF4X64) weft_nf4x64_pack(to, x + i, some);
        if (dtype == WEFT_F8X128) weft_f8x128_pack(to, x + i, some);
    }
    return out;
}

static void norms_are_judged(int64_t rows, int64_t width, int64_t rank, int32_t dtype, int32_t dtype_w) {
    const bool packed = weft_dtype_is_packed(dtype_w);
    const weft_row_norms args = {.struct_size = sizeof args,
                                 .rows = rows,
                                 .width = width,
                                 .rank = rank,
                                 .factor = 1.5,
                                 .dtype = dtype,
                                 .dtype_w = dtype_w};
    const weft_row_norms in_fp32 = {.struct_size = sizeof args,
                                    .rows = rows,
                                    .width = width,
                                    .rank = rank,
                                    .factor = 1.5,
                                    .dtype_w = packed ? dtype_w : WEFT_F32};
    float *w = numbers_of(packed ? WEFT_F32 : dtype_w, rows * width, 0.2f),
          *down = numbers_of(dtype, rank * width, 0.3f);
    float *up = numbers_of(dtype, rows * rank, 0.3f);
    void *packed_w = packed ? packed_of(dtype_w, w, rows * width) : NULL;
    call c = CALL_WITH_ROOM(row_norms, weft_row_norms, args);
    float *got = NULL;
    double *want = NULL;
    IN(&c, weft_row_norms, w, packed ? packed_w : w, rows * width, dtype_w);
    if (rank > 0) IN(&c, weft_row_norms, down, down, rank * width, dtype);
    if (rank > 0) IN(&c, weft_row_norms, up, up, rows * rank, dtype);
    OUT(&c, weft_row_norms, out, NULL, rows, WEFT_F32);
    expect_bounds(&c, "row_norms");
    got = every_way(device_run, &c, "row_norms");
    c.args = &in_fp32;
    want = reference_run(&c, offsetof(weft_row_norms, dtype));
    expect_close("row_norms", got, want, rows, 1e-6);
    FREE(w), FREE(down), FREE(up), FREE(packed_w), FREE(got), FREE(want);
}

TESTS(rows_of_a_sum_are_normed, n_types()) {
    const int32_t dtype = dtypes[_i];
    norms_are_judged(50, 72, 8, dtype, dtype);
    norms_are_judged(13, 600, 3, dtype, dtype);
    norms_are_judged(7, 5, 0, dtype, dtype);
    norms_are_judged(9, 300, 40, dtype, dtype);
    norms_are_judged(25, 576, 4, dtype, WEFT_I8X64);
    norms_are_judged(1, 64, 0, dtype, WEFT_I8X64);
}

/* W is a frozen base with its stored type, U and D are trained: all type combinations are allowed. */
TESTS(rows_are_normed_whatever_they_are_stored_as, n_types()) {
    const int32_t dtype = dtypes[_i], other = dtypes[_i == 0];
    norms_are_judged(11, 300, 5, dtype, other);
    norms_are_judged(9, 700, 4, dtype, WEFT_NF4); /* blocks of 1,024 span rows */
    norms_are_judged(3, 70, 0, dtype, WEFT_NF4);
    norms_are_judged(10, 330, 7, dtype, WEFT_F8X128);
    norms_are_judged(9, 330, 4, dtype, WEFT_NF4X64);
}

TEST(norms_of_what_is_no_matrix_are_refused) {
    const weft_row_norms args = {
        .struct_size = sizeof args, .rows = 1, .width = 256, .dtype = WEFT_F32, .dtype_w = WEFT_DYN8X256};
    REJECTS(&(run){.device = devices[0]}, row_norms, &args, WEFT_E_UNSUPPORTED, "dtype_w is");
}

/* ---- a prefix ---- */

typedef struct shape {
    int64_t batch, length, heads, kv_heads, head_dim, places, rotary_dim;
} shape;

static void prefix_is_judged(shape t, int32_t dtype, bool join, bool adds) {
    const int64_t rows = t.batch * t.length, q = rows * t.heads * t.head_dim, k = t.places * t.kv_heads * t.head_dim;
    weft_prefix args = {.struct_size = sizeof args,
                        .batch = t.batch,
                        .length = t.length,
                        .heads = t.heads,
                        .kv_heads = t.kv_heads,
                        .head_dim = t.head_dim,
                        .places = t.places,
                        .rotary_dim = t.rotary_dim,
                        .scale = 0.3,
                        .dtype = dtype,
                        .join = join,
                        .accumulate_dq = adds};
    float *qs = numbers_of(dtype, q, 2), *ks = numbers_of(dtype, k, 2), *vs = numbers_of(dtype, k, 1);
    float *o = numbers_of(dtype, q, 1), *lse = numbers(rows * t.heads, 2), *turn = numbers(t.rotary_dim, 3);
    float *d_o = numbers_of(dtype, q, 1), *dq = numbers_of(dtype, q, 1), *made = NULL;
    call forward = CALL_WITH_ROOM(prefix, weft_prefix, args);
    call back = CALL_WITH_ROOM(prefix_backward, weft_prefix, args);
    for (int i = 0; i < 2; i++) {
        call *c = i == 0 ? &forward : &back;
        IN(c, weft_prefix, q, qs, q, dtype);
        IN(c, weft_prefix, k, ks, k, dtype);
        IN(c, weft_prefix, v, vs, k, dtype);
        if (t.rotary_dim > 0) IN(c, weft_prefix, turn, turn, t.rotary_dim, WEFT_F32);
    }
    OUT(&forward, weft_prefix, o, join ? o : NULL, q, dtype);
    OUT(&forward, weft_prefix, lse, join ? lse : NULL, rows * t.heads, WEFT_F32);
    expect_alike(&forward, offsetof(weft_prefix, dtype), 2e-6, false);
    made = every_way(device_run, &forward, "prefix"); /* o and lse are inputs of the backward */
    IN(&back, weft_prefix, o, made, q, dtype);
    IN(&back, weft_prefix, lse, made + q, rows * t.heads, WEFT_F32);
    IN(&back, weft_prefix, d_o, d_o, q, dtype);
    OUT(&back, weft_prefix, dq, adds ? dq : NULL, q, dtype);
    OUT(&back, weft_prefix, dk, NULL, k, dtype);
    OUT(&back, weft_prefix, dv, NULL, k, dtype);
    expect_alike(&back, offsetof(weft_prefix, dtype), 4e-6, false);
    if (!join && !adds) expect_bounds(&back, "prefix_backward");
    if (!join && !adds) expect_bounds(&forward, "prefix");
    FREE(qs), FREE(ks), FREE(vs), FREE(o), FREE(lse), FREE(turn), FREE(d_o), FREE(dq), FREE(made);
}

TESTS(every_query_sees_a_prefix, n_types()) {
    const int32_t dtype = dtypes[_i];
    prefix_is_judged((shape){2, 37, 4, 2, 16, 5, 0}, dtype, false, false);
    prefix_is_judged((shape){2, 37, 4, 2, 16, 5, 16}, dtype, true, true);
    prefix_is_judged((shape){1, 70, 2, 1, 24, 67, 8}, dtype, true, false);
    prefix_is_judged((shape){1, 1, 3, 3, 8, 1, 0}, dtype, false, true);
    if (is_full() || is_cpu()) prefix_is_judged((shape){3, 150, 6, 2, 64, 30, 64}, dtype, true, true);
}

TEST(a_prefix_of_no_shape_is_refused) {
    const weft_prefix args = {.struct_size = sizeof args,
                              .batch = 1,
                              .length = 1,
                              .heads = 3,
                              .kv_heads = 2,
                              .head_dim = 4,
                              .places = 1,
                              .dtype = WEFT_F32};
    REJECTS(&(run){.device = devices[0]}, prefix, &args, WEFT_E_HOST, "3 heads over 2");
}

int main(void) {
    return run_device_suite("adapters");
}
