/* tests/tensor/test_bf16.c: graphs in bf16: rounded and unrounded values, memory, and errors. */
#include "graph_models.h"
#include "model/convert.h"
#include "suite.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

enum { D = RIG_D, HD = RIG_HEAD, ROWS = 3, LENGTH = 21, PLACES = ROWS * LENGTH };

RETURNS(linear, ops->linear(g, carry, r->weights[0]))

static const rig_weight matrix[] = {{"w", WEFT_WEIGHT_LINEAR, D, D}, {0}};
static const rig_model linear_model = {"linear", matrix, .carry_width = D, .n_segments = 3, .forward = linear};

static float rounded(double value) {
    const float wide = (float)value;
    uint16_t narrow = 0;
    float out = 0.0f;
    ck_assert(weft_convert(&narrow, WEFT_BF16, &wide, WEFT_F32, 1));
    ck_assert(weft_convert(&out, WEFT_F32, &narrow, WEFT_BF16, 1));
    return out;
}

static float *rounded_all(const float *values, int64_t n) {
    float *out = malloc((size_t)n * sizeof *out);
    ck_assert_ptr_nonnull(out);
    for (int64_t i = 0; i < n; i++) out[i] = rounded((double)values[i]);
    return out;
}

static int64_t equal(const float *a, const float *b, int64_t n) {
    int64_t same = 0;
    for (int64_t i = 0; i < n; i++) same += a[i] == b[i];
    return same;
}

/* c (m,n) = a b in fp64; element (i,k) of a has index i * ai + k * ak, and so on for b. */
static float *exact_product(const float *a, int64_t ai, int64_t ak, const float *b, int64_t bk, int64_t bj, int64_t m,
                            int64_t n, int64_t inner) {
    float *c = malloc((size_t)(m * n) * sizeof *c);
    ck_assert_ptr_nonnull(c);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < inner; k++) sum += (double)a[i * ai + k * ak] * (double)b[k * bk + j * bj];
            c[i * n + j] = (float)sum;
        }
    return c;
}

/* Checks that nearly all results equal the rounded result of rounded operands (a sum near the middle between two
 * numbers may round either way), and that many differ from the rounded result of unrounded operands. */
static void check_rounded(const char *what, const float *found, float *exact, float *of_unrounded, int64_t n) {
    float *a = rounded_all(exact, n), *b = rounded_all(of_unrounded, n);
    ck_assert_msg(equal(found, a, n) >= n - n / 100, "%s: %lld of %lld are the products of rounded operands", what,
                  (long long)equal(found, a, n), (long long)n);
    ck_assert_msg(equal(found, b, n) < n * 9 / 10, "%s: %lld of %lld are the products of fp32's operands", what,
                  (long long)equal(found, b, n), (long long)n);
    free(a);
    free(b);
    free(exact);
    free(of_unrounded);
}

/* y = x W^T, dx = dy W, dW = dy^T x, with rounded x, dy and W and unrounded sums; dW is not rounded at all. */
TESTS(products_take_rounded_operands, RIG_DEVICES) {
    rig r;
    rig_chain chain;
    float *x = NULL, *y = NULL, *dx = NULL, *dw = NULL, *exact = NULL, *narrow = NULL, *wide = NULL, *w = NULL;
    rig_open(&r, _i, &linear_model, ROWS, LENGTH);
    rig_round(&r);
    rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, 1, 1);
    rig_chain_forward(&chain);
    rig_chain_backward(&chain);
    w = rig_floats(&r, r.values[0], D * D);
    narrow = rounded_all(w, D * D);
    x = rig_numbers(&r, chain.runs[1].binding.carry_in.ref, PLACES * D);
    y = rig_numbers(&r, chain.runs[1].binding.carry_out.ref, PLACES * D);
    dx = rig_numbers(&r, chain.runs[1].binding.d_carry_in.ref, PLACES * D);
    dw = rig_floats(&r, r.gradients[0].ref, D * D);
    check_rounded("y", y, exact_product(x, D, 1, narrow, 1, D, PLACES, D, D),
                  exact_product(x, D, 1, w, 1, D, PLACES, D, D), PLACES * D);
    check_rounded("dx", dx, exact_product(chain.above, D, 1, narrow, D, 1, PLACES, D, D),
                  exact_product(chain.above, D, 1, w, D, 1, PLACES, D, D), PLACES * D);
    exact = exact_product(chain.above, 1, D, x, D, 1, D, D, PLACES);
    wide = rounded_all(exact, D * D);
    ck_assert_double_lt(rig_distance(dw, exact, D * D), 1e-6);
    ck_assert_double_gt(rig_distance(dw, wide, D * D), 1e-4);
    free(x);
    free(y);
    free(dx);
    free(dw);
    free(w);
    free(narrow);
    free(wide);
    free(exact);
    rig_chain_close(&chain);
    rig_close(&r);
}

/* Values take half the bytes; statistics of norms and attention remain fp32. */
static int64_t tape_bytes(const int64_t *widths, const bool *whole, int n) {
    int64_t end = 0;
    for (int i = 0; i < n; i++) end = (end + 63) / 64 * 64 + PLACES * widths[i] * (whole[i] ? 4 : 2);
    return end;
}

TEST(values_take_half_the_bytes) {
    const int64_t heads = RIG_HEADS * HD, kv = RIG_KV_HEADS * HD;
    /* normed, rstd, rotated q and k, v, output, lse */
    const int64_t attention[] = {D, 1, heads, kv, kv, heads, RIG_HEADS};
    const bool statistics[] = {false, true, false, false, false, false, true};
    /* normed, rstd, gate, up, product */
    const int64_t mlp[] = {D, 1, RIG_F, RIG_F, RIG_F};
    rig r;
    rig_chain chain;
    rig_open(&r, RIG_REFERENCE, &rig_language_model, ROWS, LENGTH);
    rig_round(&r);
    rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, 0, 3);
    for (int s = 0; s < 3; s++) ck_assert_int_eq(chain.runs[s].sizes->carry, (PLACES * D * 2 + 3) / 4 * 4);
    ck_assert_int_eq(chain.runs[1].sizes->tape, tape_bytes(attention, statistics, 7));
    ck_assert_int_eq(chain.runs[2].sizes->tape, tape_bytes(mlp, statistics, 5));
    /* gradients of the product, of gate and of up, each 64-byte aligned */
    ck_assert_int_eq(chain.runs[2].sizes->backward_work,
                     2 * ((PLACES * RIG_F * 2 + 63) / 64 * 64) + PLACES * RIG_F * 2);
    ck_assert_double_eq(chain.runs[0].sizes->forward_bytes, PLACES * (2.0 * D * 2.0 + 4.0));
    rig_chain_close(&chain);
    rig_close(&r);
}

/* An odd number of bf16 values ends with half a word, while memory is filled in words. */
RETURNS(deaf, ops->embedding(g, ops->ids(g), r->weights[0]))

TESTS(an_odd_number_of_values_is_filled_to_the_last, RIG_DEVICES) {
    static const rig_weight table[] = {{"w", WEFT_WEIGHT_EMBEDDING, 5, 7}, {0}};
    static const rig_model model = {"deaf", table, .carry_width = 7, .n_segments = 3, .forward = deaf};
    rig r;
    rig_chain chain;
    float *gradient = NULL;
    rig_open(&r, _i, &model, 1, 3);
    rig_round(&r);
    rig_chain_open(&chain, &r, WEFT_MODE_TRAIN, 1, 1);
    ck_assert_int_eq(chain.runs[1].sizes->carry, 44);
    rig_chain_forward(&chain);
    rig_chain_backward(&chain);
    gradient = rig_numbers(&r, chain.runs[1].binding.d_carry_in.ref, 21);
    for (int i = 0; i < 21; i++)
        ck_assert_msg(gradient[i] == 0.0f, "element %d of a gradient that nothing contributes to is %g", i,
                      (double)gradient[i]);
    free(gradient);
    rig_chain_close(&chain);
    rig_close(&r);
}

/* One tape, three ways to compute it: FORWARD, RECOMPUTE, and evaluation without a tape. */
TESTS(passes_agree_to_the_bit, RIG_DEVICES) {
    rig r;
    rig_chain train, evaluate;
    weft_error err = WEFT_ERROR_INIT;
    double trained = 0.0, evaluated = 0.0;
    rig_open(&r, _i, &rig_language_model, ROWS, LENGTH);
    rig_round(&r);
    rig_chain_open(&train, &r, WEFT_MODE_TRAIN, 0, 3);
    rig_chain_open(&evaluate, &r, WEFT_MODE_EVALUATE, 0, 3);
    trained = rig_chain_objective(&train);
    evaluated = rig_chain_objective(&evaluate);
    ck_assert(trained > 1.0);
    ck_assert_double_eq_tol(evaluated / trained, 1.0, 1e-6);
    for (int s = 1; s <= 2; s++) {
        const weft_graph_binding *b = &train.runs[s].binding;
        const int64_t bytes = train.runs[s].sizes->tape;
        char *before = malloc((size_t)bytes), *after = malloc((size_t)bytes);
        ck_assert(before != NULL && after != NULL);
        rig_ok(r.kernels->fill(r.device, NULL, b->tape.ref, 0x7fc00000u, bytes / 4, &err), &err);
        rig_ok(weft_graph_forward(train.runs[s].graph, b, false, &err), &err);
        rig_read(&r, before, b->tape.ref, bytes);
        rig_ok(r.kernels->fill(r.device, NULL, b->tape.ref, 0x7fc00000u, bytes / 4, &err), &err);
        rig_ok(weft_graph_forward(train.runs[s].graph, b, true, &err), &err);
        rig_read(&r, after, b->tape.ref, bytes);
        ck_assert_mem_eq(before, after, (size_t)bytes);
        free(before);
        free(after);
    }
    rig_chain_close(&train);
    rig_chain_close(&evaluate);
    rig_close(&r);
}

/* ---- model queries and errors ---- */

static int32_t told;

FORWARD(ask) {
    weft_graph_info info = {.struct_size = (uint32_t)sizeof info};
    ops->info(g, &info);
    told = info.dtype;
    return ops->add(g, carry, carry);
}

static weft_status nothing(const weft_custom_call *call, weft_error *err) {
    return WEFT_OK;
}

FORWARD(custom) {
    static const weft_custom_op op = {
        .struct_size = (uint32_t)sizeof op, .name = "fold", .keeps_inputs = 1, .forward = nothing, .backward = nothing};
    return ops->custom(g, &op, &carry, 1, D, NULL, 0);
}

static weft_status record(rig *r, int32_t dtype, weft_error *err) {
    const weft_graph_spec spec = {.mode = WEFT_MODE_TRAIN,
                                  .dtype = dtype,
                                  .rows = ROWS,
                                  .length = LENGTH,
                                  .kernels = r->kernels,
                                  .device = r->device};
    weft_graph *graph = NULL;
    const weft_status status = weft_graph_record(&graph, &r->declared, 1, &spec, err);
    weft_graph_destroy(graph);
    return status;
}

TEST(the_model_is_told_its_type) {
    static const rig_model model = {"ask", .carry_width = D, .n_segments = 3, .forward = ask};
    rig r;
    weft_error err = WEFT_ERROR_INIT;
    rig_open(&r, RIG_REFERENCE, &model, ROWS, LENGTH);
    rig_ok(record(&r, WEFT_F32, &err), &err);
    ck_assert_int_eq(told, WEFT_F32);
    rig_ok(record(&r, WEFT_BF16, &err), &err);
    ck_assert_int_eq(told, WEFT_BF16);
    rig_ok(record(&r, WEFT_F16, &err), &err);
    ck_assert_int_eq(told, WEFT_F16);
    rig_close(&r);
}

TEST(an_operator_of_a_plugin_is_refused_in_words) {
    static const rig_model model = {"custom", .carry_width = D, .n_segments = 3, .forward = custom};
    rig r;
    weft_error err = WEFT_ERROR_INIT;
    rig_open(&r, RIG_REFERENCE, &model, ROWS, LENGTH);
    rig_ok(record(&r, WEFT_F32, &err), &err);
    ck_assert_int_eq(record(&r, WEFT_BF16, &err), WEFT_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.text, "segment part.1: custom fold: ") != NULL &&
                      strstr(err.text, "computes in fp32, and this model runs in bf16") != NULL &&
                      strstr(err.text, "set [train] precision = fp32") != NULL,
                  "%s", err.text);
    rig_close(&r);
}

int main(void) {
    return run_tests(tcase_create("bf16"));
}
