/* tests/train/test_fp16.c: [train] precision = fp16 (test_bf16.c compares it to fp32). Loss scaling equals PyTorch's
 * GradScaler (golden files); a skipped step changes no state. */
#include "run/session.h"
#include "golden.h"
#include "run/engine.h"
#include "suite.h"
#include "train_rig.h"

#include <jansson.h>
#include <math.h>

#define ADAMW "optimizer.plugin=adamw", "optimizer.weight_decay=0.01"
#define FP16  "train.precision=fp16"

/* ---- loss scale ---- */

static json_t *read_golden(void) {
    char path[4096];
    json_error_t at;
    json_t *root = NULL;
    golden_path(path, sizeof path, "loss_scale.json");
    root = json_load_file(path, 0, &at);
    ck_assert_msg(root != NULL, "%s:%d: %s", path, at.line, at.text);
    return root;
}

static double number_at(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

/* Compares the scale of each step to GradScaler's, including the one after the last step. */
static void follow_case(const json_t *one) {
    const weft_train_settings keys = {.loss_scale = number_at(one, "init"),
                                      .scale_growth = number_at(one, "growth"),
                                      .scale_backoff = number_at(one, "backoff"),
                                      .scale_every = (int64_t)number_at(one, "interval"),
                                      .scale_floor = 1e-30};
    const char *finite = json_string_value(json_object_get(one, "finite"));
    const json_t *changes = json_object_get(one, "changes");
    const size_t n = strlen(finite);
    size_t next = 0;
    double scale = 0.0;
    weft_loss_scale now = {.scale = (float)keys.loss_scale};
    for (size_t step = 1; step <= n + 1; step++) {
        const json_t *change = json_array_get(changes, next);
        if (change != NULL && (size_t)json_integer_value(json_array_get(change, 0)) == step) {
            scale = json_number_value(json_array_get(change, 1));
            next++;
        }
        ck_assert_msg((double)now.scale == scale, "step %zu has the scale %.9g, and GradScaler %.9g", step,
                      (double)now.scale, scale);
        if (step <= n) ck_assert(weft_loss_scale_note(&now, &keys, finite[step - 1] == '1'));
    }
    ck_assert_uint_eq(next, json_array_size(changes));
    ck_assert_int_eq((int64_t)n - now.skipped, (int64_t)number_at(one, "made"));
}

TEST(the_scale_is_grad_scalers) {
    json_t *root = read_golden(), *one = NULL;
    size_t i = 0;
    json_array_foreach(json_object_get(root, "cases"), i, one) follow_case(one);
    ck_assert_uint_ge(i, 8);
    json_decref(root);
}

TEST(reports_a_scale_below_its_floor) {
    const weft_train_settings keys = {
        .loss_scale = 8, .scale_growth = 2, .scale_backoff = 0.5, .scale_every = 10, .scale_floor = 2};
    weft_loss_scale now = {.scale = (float)keys.loss_scale};
    ck_assert(weft_loss_scale_note(&now, &keys, false));
    ck_assert(weft_loss_scale_note(&now, &keys, false));
    ck_assert(!weft_loss_scale_note(&now, &keys, false));
}

/* ---- steps ---- */

static double distance(const float *a, const float *b, int64_t n) {
    double off = 0.0, all = 0.0;
    for (int64_t i = 0; i < n; i++) {
        off += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)b[i] * (double)b[i];
    }
    return sqrt(off / all);
}

/* Clipping removes the scale. The remaining difference is the precision of small gradients below 2^-14. */
TEST(another_scale_is_the_same_run) {
    const char *small[] = {ADAMW, FP16, "train.loss_scale=3000"}, *large[] = {ADAMW, FP16, "train.loss_scale=48000"};
    const char *const *overrides[] = {small, large};
    float *weights[2] = {NULL, NULL};
    weft_step_result result[2];
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        train_rig rig;
        train_rig_golden(&rig, "llama-gqa", 1, false, overrides[i], 4);
        train_rig_steps(&rig, 2);
        result[i] = train_rig_step(&rig, 3);
        weights[i] = train_rig_parameters(&rig);
        n = rig.engine->plan.layout->numel;
        ck_assert_int_eq(rig.engine->scale.skipped, 0);
        train_rig_close(&rig);
    }
    ck_assert_double_lt(fabs(result[1].norm / result[0].norm - 1.0), 1e-3);
    ck_assert_double_lt(distance(weights[0], weights[1], n), 1e-3);
    ck_assert(result[0].scale == 3000.0 && result[1].scale == 48000.0);
    free(weights[0]);
    free(weights[1]);
}

/* Losses, rates, skipped steps and scales of a PyTorch run; its losses are rounded differently. */
TEST(a_run_is_near_torchs_under_grad_scaler) {
    json_t *root = read_golden();
    const json_t *run = json_object_get(root, "run");
    const weft_schedule schedule = {WEFT_SCHEDULE_LINEAR, (int64_t)number_at(run, "steps"),
                                    (int64_t)number_at(run, "warmup"), 1, 1.0};
    char first[60], every[60];
    const char *overrides[] = {ADAMW, FP16, first, every};
    golden_batch batch;
    golden_engine g;
    weft_error err = WEFT_ERROR_INIT;
    (void)snprintf(first, sizeof first, "train.loss_scale=%.17g", number_at(run, "first"));
    (void)snprintf(every, sizeof every, "train.scale_every=%d", (int)number_at(run, "interval"));
    golden_batch_open(&batch, "llama-tied");
    golden_engine_open(&g, &batch, "llama-tied", 1, overrides, 5);
    for (int64_t step = 1; step <= schedule.steps; step++) {
        const size_t at = (size_t)step - 1;
        const double loss = json_number_value(json_array_get(json_object_get(run, "loss"), at));
        const double wide = json_number_value(json_array_get(json_object_get(run, "fp32_loss"), at));
        const double rate = json_number_value(json_array_get(json_object_get(run, "rate"), at));
        const double scale = json_number_value(json_array_get(json_object_get(run, "scale"), at));
        const bool skipped = json_is_true(json_array_get(json_object_get(run, "skipped"), at));
        const double lr = number_at(run, "lr") * weft_schedule_factor(&schedule, step - g.engine->scale.skipped);
        weft_step_result result = {0};
        ck_assert_ok(weft_stepper_train(g.stepper, &result, (uint64_t)step, lr, number_at(run, "clip"), &err), err);
        printf("step %2d: loss %.6f, torch's %.6f, in fp32 %.6f; scale %g%s\n", (int)step,
               result.loss_sum / (double)result.n_targets, loss, wide, result.scale, skipped ? ", skipped" : "");
        ck_assert_double_lt(fabs(lr - rate), 1e-12);
        ck_assert(result.scale == scale);
        ck_assert_int_eq(result.skipped, skipped);
        ck_assert_double_lt(fabs(result.loss_sum / (double)result.n_targets / loss - 1.0), 2e-3);
    }
    golden_engine_close(&g);
    golden_batch_close(&batch);
    json_decref(root);
}

/* ---- skipped steps ---- */

/* Weights, states and the update count do not change by a bit. The next step, at the smaller scale, equals the first
 * step of a run that started with that scale. */
TEST(a_skipped_step_changes_nothing) {
    const char *high[] = {ADAMW, FP16, "train.loss_scale=1e12", "train.scale_backoff=1e-9"};
    const char *low[] = {ADAMW, FP16, "train.loss_scale=1000"};
    float *before = NULL, *after = NULL, *skipping = NULL, *plain = NULL;
    weft_step_result result;
    train_rig rig;
    int64_t n = 0;
    train_rig_golden(&rig, "llama-gqa", 1, false, high, 5);
    n = rig.engine->plan.layout->numel;
    before = train_rig_parameters(&rig);
    result = train_rig_step(&rig, 1);
    after = train_rig_parameters(&rig);
    ck_assert(result.skipped && result.overflowed && !isfinite(result.norm) && isfinite(result.loss_sum));
    ck_assert(result.scale == (double)1e12f);
    ck_assert(same_floats(before, after, n));
    ck_assert_uint_eq(rig.engine->updates, 0);
    ck_assert_int_eq(rig.engine->scale.skipped, 1);
    ck_assert(rig.engine->scale.scale == 1000.0f);
    result = train_rig_step(&rig, 1);
    ck_assert(!result.skipped);
    ck_assert_uint_eq(rig.engine->updates, 1);
    skipping = train_rig_parameters(&rig);
    train_rig_close(&rig);
    train_rig_golden(&rig, "llama-gqa", 1, false, low, 4);
    (void)train_rig_step(&rig, 1);
    plain = train_rig_parameters(&rig);
    ck_assert(same_floats(skipping, plain, n));
    ck_assert(!same_floats(before, plain, n));
    train_rig_close(&rig);
    free(before);
    free(after);
    free(skipping);
    free(plain);
}

/* A NaN weight is not caused by the scale: the run stops and reports the source. */
TEST(a_scale_at_its_floor_ends_the_run) {
    const char *overrides[] = {ADAMW, FP16, "train.loss_scale=4"};
    const float bad = NAN;
    train_rig rig;
    weft_error err = WEFT_ERROR_INIT;
    weft_step_result result = {0};
    int32_t p = -1;
    train_rig_golden(&rig, "llama-gqa", 1, true, overrides, 4);
    p = weft_declared_find(rig.engine->plan.declared, "model.layers.1.input_layernorm.weight");
    ck_assert_int_eq(rig.engine->kernels->write(rig.engine->device, NULL, rig.engine->parameter_refs[p], &bad, 4, &err),
                     WEFT_OK);
    for (uint64_t step = 1; step <= 2; step++) {
        ck_assert_ok(weft_stepper_train(rig.stepper, &result, step, 1e-3, 0.5, &err), err);
        ck_assert(result.skipped && result.overflowed);
    }
    ck_assert_int_eq(weft_stepper_train(rig.stepper, &result, 3, 1e-3, 0.5, &err), WEFT_E_NUMERIC);
    ck_assert_msg(strstr(err.text, "loss scale has fallen to 0.5, below [train] scale_floor = 1") != NULL &&
                      strstr(err.text, "the forward of layers.1.attn computes the first") != NULL,
                  "%s", err.text);
    train_rig_close(&rig);
}

/* ---- bytes ---- */

/* As for bf16: the scale is stored next to the count of targets. The arena also includes workspaces, which differ if a
 * processor multiplies in only one of the two types. */
TEST(a_plan_has_the_bytes_of_bf16s) {
    static const char *const precisions[] = {"train.precision=bf16", FP16};
    weft_plan_bytes planned[2];
    row_data data;
    row_data_golden(&data, "llama-gqa");
    for (int i = 0; i < 2; i++) {
        const char *overrides[] = {ADAMW, precisions[i], "model.start=fresh"};
        const weft_plan_spec spec = train_rig_spec(&data, 1, true);
        weft_error err = WEFT_ERROR_INIT;
        train_rig rig;
        train_rig_open(&rig, "llama-gqa", &data, overrides, 4);
        ck_assert_ok(weft_engine_prepare(rig.engine, &spec, &err), err);
        planned[i] = rig.engine->plan.bytes;
        train_rig_close(&rig);
    }
    for (int i = 0; i < WEFT_N_ACCOUNT_LINES; i++)
        if (i != WEFT_ACCOUNT_ARENA) ck_assert_int_eq(planned[0].line[i], planned[1].line[i]);
    for (int i = 0; i < WEFT_N_MEMORY_CATEGORIES; i++)
        if (i != WEFT_MEMORY_WORKSPACE) ck_assert_int_eq(planned[0].category[i], planned[1].category[i]);
    if (planned[0].category[WEFT_MEMORY_WORKSPACE] == planned[1].category[WEFT_MEMORY_WORKSPACE])
        ck_assert_int_eq(planned[0].line[WEFT_ACCOUNT_ARENA], planned[1].line[WEFT_ACCOUNT_ARENA]);
    row_data_free(&data);
}

int main(void) {
    return run_tests(test_case("fp16", 120, NULL, NULL));
}
