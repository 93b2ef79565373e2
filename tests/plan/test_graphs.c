/* Graphs for several micro-batch lengths: a segment must read the same parameters, in the same order, for each length.
 * Otherwise it is rejected by name. */
#include "graph_models.h"
#include "program/job.h"
#include "suite.h"

static int64_t long_from; /* micro-batches of at least this length are computed differently */

FORWARD(forward) {
    const weft_value none = {0};
    weft_graph_info info = {.struct_size = (uint32_t)sizeof info};
    ops->info(g, &info);
    if (s == 0) return ops->embedding(g, ops->ids(g), r->weights[0]);
    if (s == 1) return ops->rms_norm(g, carry, r->weights[info.length < long_from ? 1 : 6], 1e-5);
    ops->lm_head(g, carry, r->weights[0], NULL);
    return none;
}

static weft_status make(weft_graph_set **out, weft_error *err) {
    static const rig_model model = {"forked", .weights = rig_language_weights, .carry_width = RIG_D, .n_segments = 3,
                                    .forward = forward};
    static const int32_t lengths[] = {3, 5, 9};
    weft_graph_spec spec = {.mode = WEFT_MODE_TRAIN, .dtype = WEFT_F32, .rows = 2};
    rig r;
    weft_status status = WEFT_OK;
    rig_open(&r, RIG_REFERENCE, &model, 2, 9);
    spec.kernels = r.kernels;
    spec.device = r.device;
    status = weft_graph_set_create(out, &r.declared, &spec, lengths, 3, err);
    weft_graph_set_destroy(*out);
    rig_close(&r);
    return status;
}

TEST(parameters_read_must_not_depend_on_the_length) {
    weft_error err = WEFT_ERROR_INIT;
    weft_graph_set *set = NULL;
    long_from = 100;
    ck_assert_ok(make(&set, &err), err);
    set = NULL;
    long_from = 9; /* not the second, but the last */
    ck_assert_int_eq(make(&set, &err), WEFT_E_PLUGIN);
    ck_assert_ptr_nonnull(strstr(err.text, "the model reads other parameters in segment "));
    ck_assert_ptr_nonnull(strstr(err.text, "for micro-batches of length 9 than of length 3"));
}

int main(void) {
    return run_tests(tcase_create("graphs"));
}
