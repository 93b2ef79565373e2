/* The host's own keys: defaults and rules across keys. */
#include "loaded.h"

#include "config/settings.h"

static weft_settings settings;

/* text follows a [model] section with its path. */
static weft_status load(const char *text) {
    char whole[4096];
    weft_status status = WEFT_OK;
    (void)snprintf(whole, sizeof whole, "[model]\npath = m\n%s", text);
    write_text("run.ini", whole);
    status = load_config("run.ini", NULL, 0);
    return status == WEFT_OK ? weft_settings_load(&settings, config, &err) : status;
}

TEST(names_of_enums_stand_in_the_order_of_their_values) {
    ck_assert_ok(load("start = fresh\n[tokenizer]\nbos = yes\neos = no\n[train]\nschedule = step\nstep_every = 2\n"
                      "[checkpoint]\ndtype = fp16\n"));
    ck_assert_int_eq(settings.model.start, WEFT_START_FRESH);
    ck_assert_int_eq(settings.tokenizer.bos, WEFT_CHOICE_YES);
    ck_assert_int_eq(settings.tokenizer.eos, WEFT_CHOICE_NO);
    ck_assert_int_eq(settings.train.schedule, WEFT_SCHEDULE_STEP);
    ck_assert_int_eq(settings.checkpoint.dtype, WEFT_SAVE_FP16);
    ck_assert_ok(load("[train]\nschedule = linear\n[checkpoint]\ndtype = bf16\n"));
    ck_assert_int_eq(settings.train.schedule, WEFT_SCHEDULE_LINEAR);
    ck_assert_int_eq(settings.checkpoint.dtype, WEFT_SAVE_BF16);
    ck_assert_ok(load("[train]\nschedule = cosine\n[checkpoint]\ndtype = fp32\n"));
    ck_assert_int_eq(settings.train.schedule, WEFT_SCHEDULE_COSINE);
    ck_assert_int_eq(settings.checkpoint.dtype, WEFT_SAVE_FP32);
}

#define PIN "optimizer:lion=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdeF"

static const struct {
    const char *text, *says[2];
} refused[] = {
    {"[train]\nglobal_batch = 10\nmicro_batch = 4\n",
     {"run.ini:4: [train] global_batch = 10 is not a multiple of micro_batch = 4",
      "set global_batch = 8 or 12, or micro_batch = 2 or 5"}},
    {"[train]\nmicro_batch = 4\n",
     {"[train] global_batch = 1 (its default) is not a multiple of micro_batch = 4",
      "set global_batch = 4, or micro_batch = 1"}},
    {"[train]\nglobal_batch = 7\nmicro_batch = 3\n", {"set global_batch = 6 or 9, or micro_batch = 1 or 7"}},
    {"[train]\nglobal_batch = 0\n", {"is outside [1,1G]: give a whole number of at least 1 and at most 1000000000"}},
    {"[train]\nsteps = 10\nepochs = 2\n", {"run.ini:5: [train] epochs = 2 and steps = 10 are both set"}},
    {"[train]\nwarmup = 2.5\n", {"run.ini:4: [train] warmup = 2.5 is neither steps nor a ratio"}},
    {"[train]\nwarmup = -1\n", {"is outside [0,inf)"}},
    {"[train]\nschedule = step\n", {"run.ini:4: [train] schedule = step needs step_every"}},
    {"[train]\ngamma = 0\n", {"is outside (0,1]"}},
    {"[train]\nprecision = fp8\n", {"is not one of: fp32"}},
    {"[eval]\nevery = sometimes\n",
     {"run.ini:4: [eval] every = sometimes is not an interval. Allowed:", "(5%), or none"}},
    {"[eval]\nevery = 0\n", {"is not an interval"}},
    {"[eval]\nevery =\n", {"is not an interval"}},
    {"[eval]\nevery = 0%\n", {"is not an interval"}},
    {"[eval]\nevery = 101%\n", {"is not an interval"}},
    {"[eval]\nevery = %\n", {"is not an interval"}},
    {"[eval]\nevery = 2.5\n", {"is not an interval"}},
    {"[checkpoint]\nevery = -5%\n", {"run.ini:4: [checkpoint] every = -5% is not an interval"}},
    {"[checkpoint]\nkeep = 0\n", {"is outside [1,inf)"}},
    {"[run]\nseed = -1\n", {"is outside [0,inf)"}},
    {"[plugins]\npin = lion\n", {"run.ini:4: [plugins] pin = lion has an element that is no pin"}},
    {"[plugins]\npin = " PIN ",optimizer:=" PIN "\n", {"is no pin"}},
    {"[plugins]\npin = optimizer:lion=xyz\n", {"is no pin"}},
};

/* Loads as a command that trains. */
static weft_status load_for_steps(const char *text) {
    const weft_status status = load(text);
    return status == WEFT_OK ? weft_settings_for_steps(&settings, config, &err) : status;
}

TESTS(rules_are_held, LENGTH(refused)) {
    ck_assert_int_eq(load_for_steps(refused[_i].text), WEFT_E_USER);
    for (int k = 0; k < 2 && refused[_i].says[k] != NULL; k++) ck_assert_says(err, refused[_i].says[k]);
}

TEST(good_combinations_pass) {
    static const char *const texts[] = {"[train]\nsteps = 1\nglobal_batch = 8\nmicro_batch = 2\n",
                                        "[train]\nsteps = 1\nwarmup = 0.1\n",
                                        "[train]\nsteps = 1\nwarmup = 1\n",
                                        "[train]\nsteps = 1\nwarmup = 100\n",
                                        "[train]\nsteps = 10\nepochs = none\n",
                                        "[train]\nsteps = 1\n[run]\nseed = 9223372036854775807\n",
                                        "[train]\nsteps = 1\n[plugins]\npin = " PIN ", " PIN "\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) ck_assert_ok(load_for_steps(texts[i]));
}

TEST(rules_of_training_do_not_concern_what_does_not_train) {
    ck_assert_ok(load("[train]\nmicro_batch = 4\nschedule = step\n"));
    ck_assert_int_eq(settings.train.micro_batch, 4);
    ck_assert_int_eq(weft_settings_for_steps(&settings, config, &err), WEFT_E_USER);
    ck_assert_says(err, "global_batch = 1 (its default) is not a multiple of micro_batch = 4");
}

TEST(a_missing_model_path_is_said) {
    write_text("run.ini", "[run]\nseed = 2\n");
    ck_assert_ok(weft_config_load(&config, "run.ini", NULL, 0, &err));
    ck_assert_int_eq(weft_settings_load(&settings, config, &err), WEFT_E_USER);
    ck_assert_says(err, "run.ini: [model] path is missing");
}

TEST(an_empty_model_path_is_named) {
    static const char *const override = "model.path=";
    write_text("run.ini", "[model]\npath =\n");
    ck_assert_ok(weft_config_load(&config, "run.ini", NULL, 0, &err));
    ck_assert_int_eq(weft_settings_load(&settings, config, &err), WEFT_E_USER);
    ck_assert_says(err, "run.ini:2: [model] path = \"\" names no directory. Fix: set the directory of the model");
    weft_config_free(config);
    config = NULL;
    ck_assert_ok(weft_config_load(&config, "run.ini", &override, 1, &err));
    ck_assert_int_eq(weft_settings_load(&settings, config, &err), WEFT_E_USER);
    ck_assert_says(err, "command line: [model] path = \"\" names no directory");
}

TEST(training_needs_a_length_and_a_place) {
    ck_assert_ok(load("[run]\nout = o\n"));
    ck_assert_int_eq(weft_settings_for_training(&settings, config, &err), WEFT_E_USER);
    ck_assert_says(err, "set [train] steps or epochs");
    ck_assert_ok(load("[train]\nsteps = 3\n"));
    ck_assert_int_eq(weft_settings_for_training(&settings, config, &err), WEFT_E_USER);
    ck_assert_says(err, "[run] out");
    ck_assert_ok(load("[run]\nout = o\n[train]\nepochs = 0.5\n"));
    ck_assert_ok(weft_settings_for_training(&settings, config, &err));
    ck_assert_str_eq(settings.run.out, scratch_path("o"));
}

TEST(intervals_are_steps_or_percent_rounded_up) {
    static const struct {
        const char *text;
        int64_t total, every;
    } rows[] = {{"none", 100, 0}, {"50", 10, 50},   {"1k", 10, 1000},  {"5%", 100, 5},   {"5%", 101, 6},  {"5%", 10, 1},
                {"7%", 100, 7},   {"100%", 33, 33}, {"0.5%", 1000, 5}, {"29%", 100, 29}, {"33.3%", 9, 3}, {"5%", 1, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_interval interval;
        ck_assert_ok(weft_interval_parse(&interval, rows[i].text, &err));
        ck_assert_msg(weft_interval_resolve(&interval, rows[i].total) == rows[i].every, "%s of %d", rows[i].text,
                      (int)rows[i].total);
    }
}

/* As in tests/golden/schedule.json. */
TEST(warm_up_is_steps_or_a_ratio_rounded_up) {
    static const struct {
        double warmup;
        int64_t total, steps;
    } rows[] = {{0, 12, 0},   {5, 12, 5},   {8, 5, 8},      {1, 1, 1},     {0.03, 90, 3},
                {0.1, 33, 4}, {0.1, 30, 3}, {0.07, 100, 8}, {0.001, 7, 1}, {0.05, 30, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ck_assert_int_eq(weft_warmup_resolve(rows[i].warmup, rows[i].total), rows[i].steps);
    }
}

int main(void) {
    TCase *tests = tcase_create("settings");
    tcase_add_checked_fixture(tests, setup, teardown);
    return run_tests(tests);
}
