/* tests/train/test_replay.c: captured and replayed steps have the same bits as steps run instruction by instruction.
 * Between the steps change: lengths of micro-batches, targets, learning rate, clipping, a step without a target,
 * non-finite numbers. Runs on the CPU device, which does not capture, and on the late device, which does. */
#include "golden.h"
#include "suite.h"
#include "train_rig.h"

#include <math.h>

enum { MICRO_BATCHES = 4, SHORT = 8, LONG = 16, MOST_STEPS = 48 };

static bool device_records(void) {
    return getenv("WEFT_LATE_MODE") != NULL;
}

/* ---- micro-batches of two lengths ---- */

static const fresh_shape shape = {24, 40, 2, 4, 2, 96, LONG, false};

/* Clipping cycles through `clips` values. */
typedef struct course {
    int steps, clips;
    int replayed; /* number of replayed steps, on a device with graph capture */
    bool drops;   /* with an adapter that draws new dropout in each step */
} course;

/* Results of a run. */
typedef struct outcome {
    float *parameters;
    int64_t numel;
    double loss[MOST_STEPS + 1], norm[MOST_STEPS + 1], evaluation;
    int replayed;
} outcome;

static void open_ragged(train_rig *rig, ragged_data *data, const char *replay, bool drops) {
    const char *overrides[] = {"optimizer.plugin=adamw", "model.start=fresh", replay, "adapter.plugin=lora",
                               "adapter.dropout=0.4"};
    weft_plan_spec spec = {
        .training = true, .micro_batches = MICRO_BATCHES, .rows = 1, .evaluate_rows = 1, .n_lengths = 2};
    fresh_model model;
    spec.lengths[0] = SHORT;
    spec.lengths[1] = LONG;
    fresh_model_make(&model, &shape);
    train_rig_open(rig, model.path, NULL, overrides, drops ? 5 : 3);
    rig->data_plugin = &ragged_data_plugin;
    rig->data = (weft_data *)(void *)data;
    train_rig_start(rig, &spec);
    fresh_model_remove(&model);
}

/* Three steps have three lists of lengths, and consecutive steps have different numbers of targets. */
static outcome run_course(const course *c, const char *replay) {
    ragged_data data = {SHORT, LONG, 96};
    outcome out = {0};
    train_rig rig;
    open_ragged(&rig, &data, replay, c->drops);
    for (int s = 1; s <= c->steps; s++) {
        weft_error err = WEFT_ERROR_INIT;
        weft_step_result result = {0};
        const double clip = c->clips == 1 ? 0.25 : 0.05 * (s % c->clips);
        ck_assert_ok(weft_stepper_train(rig.stepper, &result, (uint64_t)s, 1e-3 / s, clip, &err), err);
        out.loss[s] = result.loss_sum;
        out.norm[s] = result.norm;
        out.replayed += result.replayed;
        out.evaluation += train_rig_evaluate(&rig);
    }
    out.parameters = train_rig_parameters(&rig);
    out.numel = rig.engine->plan.layout->numel;
    train_rig_close(&rig);
    return out;
}

static const course courses[] = {
    {12, 1, 9, false},  /* each list runs once instruction by instruction */
    {12, 1, 9, true},   /* the same, with dropout */
    {24, 2, 20, false}, /* each micro-batch with each length, and the last with each clipping, too */
    {48, 20, 0, false}, /* 60 combinations: each is evicted before its reuse */
};

TESTS(replays_have_the_bits_of_instructions, LENGTH(courses)) {
    const course *c = &courses[_i];
    outcome instructions = run_course(c, "run.replay=no"), replays = run_course(c, "run.replay=auto");
    ck_assert(same_floats(instructions.parameters, replays.parameters, instructions.numel));
    ck_assert_mem_eq(instructions.loss, replays.loss, sizeof instructions.loss);
    ck_assert_mem_eq(instructions.norm, replays.norm, sizeof instructions.norm);
    ck_assert(instructions.evaluation == replays.evaluation);
    ck_assert_int_eq(instructions.replayed, 0);
    ck_assert_int_eq(replays.replayed, device_records() ? c->replayed : 0);
    free(instructions.parameters);
    free(replays.parameters);
}

/* ---- lists that are evicted before reuse ---- */

enum { KEPT = 16 };

/* Each step's list and clipping are evicted before their reuse; sixteen of them cause a warning. With one clipping
 * there are three, which stay in the cache. */
TESTS(replay_yes_fails_if_steps_are_not_replayed, 2) {
    const int clips = _i == 0 ? 20 : 1;
    ragged_data data = {SHORT, LONG, 96};
    weft_error err = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    weft_step_result result;
    train_rig rig;
    int s = 0;
    if (!device_records()) return; /* without graph capture it warns before the first step */
    open_ragged(&rig, &data, "run.replay=yes", false);
    while (status == WEFT_OK && s < MOST_STEPS) {
        s++;
        status = weft_stepper_train(rig.stepper, &result, (uint64_t)s, 1e-3, 0.05 * (1 + s % clips), &err);
    }
    ck_assert_int_eq(status, clips == 1 ? WEFT_OK : WEFT_E_UNSUPPORTED);
    ck_assert_int_eq(s, clips == 1 ? MOST_STEPS : 2 * KEPT);
    if (clips > 1) {
        ck_assert_says(err, "[run] replay = yes, and steps are not replayed: micro-batches have more lists of lengths");
        ck_assert_says(
            err, "the 4 slices of a step (step 32: in 16 steps a list was evicted before its capture, 0 were replayed");
    }
    train_rig_close(&rig);
}

/* ---- between replays ---- */

static void open_golden(train_rig *rig, row_data *data, const char *replay) {
    const char *overrides[] = {"optimizer.plugin=adamw", replay};
    row_data_golden(data, "llama-tied");
    train_rig_begin(rig, "llama-tied", data, 3, false, overrides, 2);
}

static float *train_with_gap(const char *replay, int *replayed) {
    row_data data, empty;
    train_rig rig;
    float *parameters = NULL;
    *replayed = 0;
    open_golden(&rig, &data, replay);
    row_data_golden(&empty, "llama-tied");
    memset(empty.weights, 0, (size_t)empty.rows * (size_t)empty.length * sizeof *empty.weights);
    for (uint64_t s = 1; s <= 6; s++) {
        weft_step_result result;
        rig.stepper->data = (weft_data *)(void *)(s == 4 ? &empty : &data);
        result = train_rig_step(&rig, s);
        ck_assert_int_eq(result.skipped, s == 4);
        ck_assert(!result.skipped || !result.replayed);
        *replayed += result.replayed;
    }
    parameters = train_rig_parameters(&rig);
    train_rig_close(&rig);
    row_data_free(&data);
    row_data_free(&empty);
    return parameters;
}

TEST(a_step_without_a_target_is_not_replayed) {
    int none = 0, some = 0;
    float *instructions = train_with_gap("run.replay=no", &none), *replays = train_with_gap("run.replay=auto", &some);
    row_data data;
    train_rig rig;
    open_golden(&rig, &data, "run.replay=no");
    ck_assert(same_floats(instructions, replays, rig.engine->plan.layout->numel));
    ck_assert_int_eq(none, 0);
    ck_assert_int_eq(some, device_records() ? 4 : 0); /* not the first, nor the fourth */
    train_rig_close(&rig);
    row_data_free(&data);
    free(instructions);
    free(replays);
}

/* A weight becomes non-finite after replays: the step runs again, instruction by instruction, to locate it. */
TEST(a_replay_that_is_not_finite_is_looked_into) {
    const float broken = INFINITY;
    weft_error err = WEFT_ERROR_INIT;
    weft_step_result result = {0};
    row_data data;
    train_rig rig;
    open_golden(&rig, &data, "run.replay=auto");
    train_rig_steps(&rig, 3);
    ck_assert_int_eq(rig.engine->kernels->write(rig.engine->device, NULL, rig.engine->parameter_refs[0], &broken,
                                                (int64_t)sizeof broken, &err),
                     WEFT_OK);
    ck_assert_int_eq(weft_stepper_train(rig.stepper, &result, 4, 1e-3, 0.5, &err), WEFT_E_NUMERIC);
    ck_assert_says(err, "step 4: the loss is not finite; ");
    ck_assert_says(err, "FORWARD embed micro-batch 0");
    train_rig_close(&rig);
    row_data_free(&data);
}

static void hear(void *context, const weft_graph *graph, const weft_call *call, double seconds) {
    ++*(int *)context;
}

TEST(a_sink_receives_every_call) {
    int heard = 0, before = 0;
    const weft_call_sink sink = {.context = &heard, .ran = hear};
    row_data data;
    train_rig rig;
    open_golden(&rig, &data, "run.replay=auto");
    train_rig_steps(&rig, 3);
    ck_assert_int_eq(train_rig_step(&rig, 4).replayed, device_records());
    rig.stepper->sink = &sink;
    ck_assert(!train_rig_step(&rig, 5).replayed);
    before = heard;
    ck_assert_int_gt(before, 0);
    ck_assert(!train_rig_step(&rig, 6).replayed);
    ck_assert_int_eq(heard, 2 * before);
    rig.stepper->sink = NULL;
    ck_assert_int_eq(train_rig_step(&rig, 7).replayed, device_records());
    train_rig_close(&rig);
    row_data_free(&data);
}

int main(void) {
    return run_tests(test_case("replay", 300, NULL, NULL));
}
