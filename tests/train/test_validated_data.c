/* tests/train/test_validated_data.c: the host validates a data plugin's properties and every micro-batch before use, at
 * negligible cost. */
#include "base/units.h"
#include "plugin/enter.h"
#include "run/validate.h"
#include "suite.h"
#include "train_rig.h"

#include <math.h>

enum { ROWS = 4, MICRO_BATCHES = 2, LENGTH = 24, VOCABULARY = 80, CONTEXT = 64 };

/* ---- a plugin with one error ---- */

static void (*mistake)(weft_micro_batch *micro_batch); /* made in micro-batches of the second half of training */
static bool in_shape;                                  /* made in `shape`, too */
static int32_t spoilt_split;

static void spoil(weft_micro_batch *micro_batch, const weft_micro_batch_request *request) {
    if (request->split == spoilt_split && request->first_row % ROWS == ROWS / MICRO_BATCHES && mistake != NULL)
        mistake(micro_batch);
}

static weft_status spoilt_shape(const weft_data *data, weft_micro_batch *out, const weft_micro_batch_request *request,
                                weft_error *err) {
    const weft_status status = row_data_plugin.shape(data, out, request, err);
    if (in_shape) spoil(out, request);
    return status;
}

static weft_status spoilt_micro_batch(const weft_data *data, weft_micro_batch *out,
                                      const weft_micro_batch_request *request, weft_error *err) {
    const weft_status status = row_data_plugin.micro_batch(data, out, request, err);
    spoil(out, request);
    return status;
}

static const weft_data_plugin spoilt = {.struct_size = (uint32_t)sizeof(weft_data_plugin),
                                        .shape = spoilt_shape,
                                        .micro_batch = spoilt_micro_batch};
static const weft_plugin described = {
    .struct_size = (uint32_t)sizeof described, .kind = "data", .id = "rows", .table = &spoilt};
static const weft_loaded loaded = {.plugin = &described, .path = "/somewhere/weft-data-rows.so", .sha256 = ""};

/* Sequence 1 of the micro-batch, position 5. */
enum { PLACE = LENGTH + 5 };

#define MISTAKE(name, ...)                                                                                             \
    static void name(weft_micro_batch *micro_batch) {                                                                  \
        __VA_ARGS__;                                                                                                   \
    }
MISTAKE(high_id, micro_batch->ids[PLACE] = VOCABULARY)
MISTAKE(low_id, micro_batch->ids[PLACE] = -1)
MISTAKE(high_target, micro_batch->targets[PLACE] = VOCABULARY)
MISTAKE(no_number, micro_batch->weights[PLACE] = NAN)
MISTAKE(infinite, micro_batch->weights[PLACE] = INFINITY)
MISTAKE(negative, micro_batch->weights[PLACE] = -1.0f)
MISTAKE(another_count, micro_batch->n_targets--)
MISTAKE(one_less, micro_batch->weights[PLACE] = 0.0f)
MISTAKE(starts_later, micro_batch->starts[PLACE] = 6)
MISTAKE(starts_back, micro_batch->starts[PLACE] = 1)
MISTAKE(starts_elsewhere, micro_batch->starts[LENGTH] = -1)
MISTAKE(far, micro_batch->positions[PLACE] = LENGTH)
MISTAKE(before, micro_batch->positions[PLACE] = -1)
MISTAKE(other_arrays, micro_batch->targets = micro_batch->ids)
MISTAKE(other_length, micro_batch->length = LENGTH - 1)
MISTAKE(no_rows, micro_batch->rows = 0)
MISTAKE(many_rows, micro_batch->rows++)
MISTAKE(too_many, micro_batch->n_targets = 2 * LENGTH + 1)
MISTAKE(fewer_than_none, micro_batch->n_targets = -1)
/* Fills all but one position. */
static void unfilled(weft_micro_batch *micro_batch) {
    const unsigned char left[4] = {WEFT_MICRO_BATCH_POISON, WEFT_MICRO_BATCH_POISON, WEFT_MICRO_BATCH_POISON,
                                   WEFT_MICRO_BATCH_POISON};
    memcpy(&micro_batch->weights[PLACE], left, sizeof left);
}

static const struct {
    void (*mistake)(weft_micro_batch *micro_batch);
    bool in_shape;
    const char *said;
} mistakes[] = {
    {high_id, false, "sequence 7 of split training, position 5: its id is 80. Allowed: 0 to 79"},
    {low_id, false, "sequence 7 of split training, position 5: its id is -1. Allowed: 0 to 79"},
    {high_target, false, "sequence 7 of split training, position 5: its target is 80. Allowed: 0 to 79"},
    {no_number, false, "sequence 7 of split training, position 5: its weight is nan"},
    {infinite, false, "sequence 7 of split training, position 5: its weight is inf"},
    {negative, false, "sequence 7 of split training, position 5: its weight is -1"},
    {unfilled, false, "sequence 7 of split training, position 5: its weight is "},
    {another_count, false,
     "its shape reports 24 positions and 48 targets for the micro-batch at sequence 6, but its micro_batch returns 24 "
     "and "
     "47"},
    {another_count, true, "its micro-batch at sequence 6 of split training declares 47 targets, but 48 of its weights"},
    {one_less, false,
     "its micro-batch at sequence 6 of split training declares 48 targets, but 47 of its weights are not 0"},
    {starts_later, false, "sequence 7 of split training, position 5: its start is 6"},
    {starts_back, false, "sequence 7 of split training, position 5: its start is 1"},
    {starts_elsewhere, false, "sequence 7 of split training, position 0: its start is -1"},
    {far, false, "sequence 7 of split training, position 5: its position is 24. Allowed: 0 to 23"},
    {before, false, "sequence 7 of split training, position 5: its position is -1"},
    {other_arrays, false, "its micro_batch replaces the arrays that it must fill"},
    {other_length, false,
     "its shape reports 24 positions and 48 targets for the micro-batch at sequence 6, but its micro_batch returns 23 "
     "and "
     "48"},
    {other_length, true,
     "its micro-batch at sequence 6 of split training has length 23, which its info does not declare"},
    {no_rows, true, "its micro-batch at sequence 6 of split training has 0 sequences, and 2 were requested"},
    {many_rows, false, "its micro-batch at sequence 6 of split training has 3 sequences, and 2 were requested"},
    {too_many, true, "has 49 targets. Allowed: 0 to 48"},
    {fewer_than_none, true, "has -1 targets. Allowed: 0 to 48"},
};

typedef struct setting {
    row_data data;
    fresh_model model;
    train_rig rig;
} setting;

static void setting_open(setting *s) {
    const char *const overrides[] = {"model.start=fresh"};
    const fresh_shape shape = {32, 56, 2, 4, 2, VOCABULARY, CONTEXT, false};
    weft_plan_spec spec;
    row_data_random(&s->data, ROWS, LENGTH, VOCABULARY, 11);
    fresh_model_make(&s->model, &shape);
    spec = train_rig_spec(&s->data, MICRO_BATCHES, true);
    train_rig_open(&s->rig, s->model.path, &s->data, overrides, 1);
    s->rig.data_plugin = &spoilt;
    train_rig_start(&s->rig, &spec);
    weft_plugin_own(&loaded);
    mistake = NULL;
    in_shape = false;
    spoilt_split = WEFT_SPLIT_TRAIN;
}

static void setting_close(setting *s) {
    train_rig_close(&s->rig);
    fresh_model_remove(&s->model);
    row_data_free(&s->data);
}

TESTS(a_micro_batch_is_refused_by_plugin_split_row_and_place, LENGTH(mistakes)) {
    static const char who[] = "data:rows (/somewhere/weft-data-rows.so), in training: ";
    weft_error err = WEFT_ERROR_INIT;
    weft_step_result result = {0};
    setting s;
    setting_open(&s);
    (void)train_rig_step(&s.rig, 1);
    mistake = mistakes[_i].mistake;
    in_shape = mistakes[_i].in_shape;
    ck_assert_int_eq(weft_stepper_train(s.rig.stepper, &result, 2, 1e-3, 0.5, &err), WEFT_E_PLUGIN);
    ck_assert_says(err, who);
    ck_assert_says(err, mistakes[_i].said);
    setting_close(&s);
}

TEST(evaluation_is_told_apart) {
    weft_error err = WEFT_ERROR_INIT;
    weft_step_result result = {0};
    setting s;
    setting_open(&s);
    mistake = high_id;
    spoilt_split = WEFT_SPLIT_VALIDATION;
    (void)train_rig_step(&s.rig, 1);
    ck_assert_int_eq(weft_stepper_evaluate(s.rig.stepper, &result, WEFT_SPLIT_VALIDATION, ROWS / MICRO_BATCHES, &err),
                     WEFT_E_PLUGIN);
    ck_assert_str_eq(err.text,
                     "instruction 0, FORWARD embed micro-batch 0: data:rows (/somewhere/weft-data-rows.so), in "
                     "evaluation: sequence 3 of split validation, "
                     "position 5: its id is 80. Allowed: 0 to 79");
    setting_close(&s);
}

/* ---- properties ---- */

typedef struct said {
    weft_data_info info;
    weft_split_info splits[3];
} said;

static said fine(void) {
    const said out = {.info = {.n_lengths = 2, .lengths = {16, 64}},
                      .splits = {{.rows = 10, .targets = 640}, {.rows = 0}, {.rows = 10, .targets = 600}}};
    return out;
}

static weft_status judge(said *what, bool training, weft_error *err) {
    weft_split_info *const infos[] = {&what->splits[0], &what->splits[1], &what->splits[2]};
    return weft_data_validate(&what->info, infos, CONTEXT, training, err);
}

static void expect_words(said *what, const char *words) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_int_eq(judge(what, true, &err), WEFT_E_PLUGIN);
    ck_assert_says(err, words);
}

TEST(validates_the_properties_of_data) {
    weft_error err = WEFT_ERROR_INIT;
    said what = fine();
    ck_assert_int_eq(judge(&what, true, &err), WEFT_OK);
    what.info.n_lengths = 0;
    expect_words(&what, "declares 0 lengths of micro-batches. Allowed: 1 to 4");
    what.info.n_lengths = 5;
    expect_words(&what, "declares 5 lengths");
    what = fine();
    what.info.lengths[0] = 0;
    expect_words(&what, "declares length 0 after 0");
    what.info.lengths[0] = 64;
    expect_words(&what, "declares length 64 after 64");
    what = fine();
    what.info.lengths[1] = CONTEXT + 1;
    expect_words(&what, "declares length 65 after 16. Allowed: increasing lengths from 1 to the model's 64");
    what = fine();
    what.splits[0].targets++;
    expect_words(&what, "its split training has 641 targets, more than 10 sequences of 64 positions");
    what = fine();
    what.splits[1].targets = 1;
    expect_words(&what, "its split validation has 1 targets, more than 0 sequences");
    what = fine();
    what.splits[2].rows = UINT64_MAX;
    expect_words(&what, "its split all has 18446744073709551615 sequences, more than can be counted");
    what = fine();
    what.splits[0].rows = what.splits[0].targets = 0;
    expect_words(&what, "its split training has no sequences");
    ck_assert_int_eq(judge(&what, false, &err), WEFT_OK);
}

/* ---- cost ---- */

/* The bound is 1 % of a step of this toy model; real models are far below. */
TEST(judging_takes_little_of_a_step) {
    enum { TIMES = 200 };
    weft_error err = WEFT_ERROR_INIT;
    const weft_micro_batch_request request = {.struct_size = (uint32_t)sizeof request,
                                              .split = WEFT_SPLIT_TRAIN,
                                              .rows = ROWS / MICRO_BATCHES};
    weft_micro_batch_bounds bounds;
    double judged = 1e9, steps = 1e9;
    setting s;
    setting_open(&s);
    bounds = weft_micro_batch_bounds_of(&s.rig.engine->plan);
    for (uint64_t step = 1; step <= 20; step++) {
        const double begin = weft_clock_seconds();
        double between = 0.0;
        (void)train_rig_step(&s.rig, step);
        between = weft_clock_seconds();
        for (int i = 0; i < TIMES; i++) {
            weft_micro_batch_request last = request;
            last.first_row = ROWS / MICRO_BATCHES;
            ck_assert_int_eq(weft_micro_batch_validate(&s.rig.stepper->micro_batch, &s.rig.stepper->micro_batch, &last,
                                                       &bounds, &err),
                             WEFT_OK);
        }
        steps = fmin(steps, between - begin);
        judged = fmin(judged, (weft_clock_seconds() - between) / TIMES * MICRO_BATCHES);
    }
    (void)printf("judging %d micro-batches of %d rows of %d places: %.2f us of a step of %.0f us\n", MICRO_BATCHES,
                 ROWS / MICRO_BATCHES, LENGTH, 1e6 * judged, 1e6 * steps);
    ck_assert_double_lt(judged, 0.01 * steps);
    setting_close(&s);
}

int main(void) {
    return run_tests(test_case("judged data", 300, NULL, NULL));
}
