/* tests/tensor/test_bf16.c: graphs in bf16: rounded and unrounded values, memory, and errors. */
#include "graph_models.h"
#include "graph/record.h"
#include "model/convert.h"
#include "suite.h"

#include <math.h>

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

TEST(the_model_knows_its_dtype) {
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
    ck_assert_says(err, "segment part.1: custom fold: ");
    ck_assert_says(err, "computes in fp32, and this model runs in bf16");
    ck_assert_says(err, "set [train] precision = fp32");
    rig_close(&r);
}

int main(void) {
    return run_tests(tcase_create("bf16"));
}
