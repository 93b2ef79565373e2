/* Changes that a resume rejects, changes that it accepts, and their records. */
#include "rig.h"

#include "base/safetensors.h"
#include "model/convert.h"

static char two[65], four[65];

static void setup(void) {
    rig_make();
    rig_two(two, four);
}

static const weft_change *find_change(const rig *run, const char *name) {
    for (int32_t i = 0; i < run->identities.n_changes; i++)
        if (strcmp(run->identities.changes[i].name, name) == 0) return &run->identities.changes[i];
    return NULL;
}

/* An override and a part of the message; name, old and new value of the fact. */
static const struct {
    const char *override, *name, *from, *to;
} fixed[] = {
    {"train.micro_batch=4", "[train] micro_batch", "2", "4"},
    {"train.global_batch=8", "[train] global_batch", "4", "8"},
    {"train.trainable=last:1", "[train] trainable", "all", "last:1"},
    {"train.precision=bf16", "[train] precision", "fp32", "bf16"},
    {"data.context=16", "lengths of sequences", "24", "16"},
    {"run.seed=8", "[run] seed", "7", "8"},
    {"data.document=file", "the sequences of the data", NULL, NULL},
    {"optimizer.plugin=sgd", "optimizer plugin", NULL, NULL},
};

TESTS(a_fact_that_differs_is_refused_by_name, LENGTH(fixed)) {
    char sentence[1200];
    weft_error err = WEFT_ERROR_INIT;
    const weft_change *change = NULL;
    rig run;
    rig_open(&run, fixed[_i].override,
             strstr(fixed[_i].override, "sgd") != NULL ? "optimizer.weight_decay=0.1" : "data.validation=none", NULL);
    ck_assert_int_eq(rig_try_resume(&run, false, &err), WEFT_E_USER);
    (void)snprintf(sentence, sizeof sentence, "%s is %s, was %s", fixed[_i].name, fixed[_i].to, fixed[_i].from);
    ck_assert_says(err, fixed[_i].to == NULL ? fixed[_i].name : sentence);
    ck_assert_says(err, "--resume=inexact");
    ck_assert_says(err, "step-4");
    ck_assert_int_eq(run.identities.n_changes, 0);

    fixture_log[0] = '\0';
    ck_assert_ok(rig_try_resume(&run, true, &err), err);
    ck_assert_logged(fixed[_i].name);
    change = find_change(&run, fixed[_i].name);
    ck_assert_ptr_nonnull(change);
    ck_assert_uint_eq(change->step, 4);
    if (fixed[_i].to != NULL) ck_assert_str_eq(change->to, fixed[_i].to);
    if (fixed[_i].from != NULL) ck_assert_str_eq(change->from, fixed[_i].from);
    rig_train(&run, 6);
    rig_save(&run);
    rig_close(&run);
    ck_assert_uint_eq(rig_newest(), 6);
}

TEST(changes_stay_on_record) {
    char *text = NULL;
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_open(&run, "train.micro_batch=4", NULL);
    ck_assert_ok(rig_try_resume(&run, true, &err), err);
    rig_train(&run, 6);
    rig_save(&run);
    rig_close(&run);
    rig_open(&run, "train.micro_batch=4", NULL); /* the run now has this value */
    rig_resume(&run);
    ck_assert_int_eq(run.identities.n_changes, 1);
    rig_train(&run, 8);
    rig_save(&run);
    rig_close(&run);
    text = read_bytes(rig_file(8, "state/run.json"), NULL);
    ck_assert_ptr_nonnull(strstr(text, "\"name\": \"[train] micro_batch\",\n   \"from\": \"2\",\n   \"to\": \"4\""));
    free(text);
    rig_open(&run, NULL); /* the reverse is a change, too */
    ck_assert_int_eq(rig_try_resume(&run, false, &err), WEFT_E_USER);
    ck_assert_says(err, "[train] micro_batch is 2, was 4");
    rig_close(&run);
}

static const struct {
    const char *override, *says;
} noted[] = {
    {"optimizer.lr=2e-3", "resume: [optimizer] lr is 0.002, was 0.01"},
    {"optimizer.beta2=0.95", "resume: [optimizer] beta2 is 0.95, was 0.999"},
    {"optimizer.decay=matrices", "resume: [optimizer] decay is matrices, was all"},
    {"train.steps=50", "resume: [train] steps is 50, was 100"},
    {"train.schedule=cosine", "resume: [train] schedule is cosine, was constant"},
    {"train.warmup=0.1", "resume: [train] warmup is 0.1, was 0"},
    {"train.warmup=60", "resume: [train] warmup is 60, was 0"},
    {"train.clip=1", "resume: [train] clip is 1, was none"},
};

TESTS(schedule_and_rates_may_change_and_are_printed, LENGTH(noted)) {
    rig run;
    rig_open(&run, noted[_i].override, NULL);
    fixture_log[0] = '\0';
    rig_resume(&run);
    ck_assert_str_eq(rig_hash(&run), four);
    ck_assert_logged(noted[_i].says);
    ck_assert_int_eq(run.identities.n_changes, 1);
    rig_close(&run);
}

TESTS(changes_without_effect_on_numbers_are_silent, 4) {
    static const char *const overrides[] = {"device.threads=2", "checkpoint.keep=7", "checkpoint.dtype=bf16",
                                            "eval.every=3"};
    rig run;
    rig_open(&run, overrides[_i], NULL);
    fixture_log[0] = '\0';
    rig_resume(&run);
    ck_assert_str_eq(rig_hash(&run), four);
    ck_assert_str_eq(fixture_log, "");
    ck_assert_int_eq(run.identities.n_changes, 0);
    rig_close(&run);
}

static weft_identity *find(rig *run, const char *name) {
    for (int32_t i = 0; i < run->identities.n; i++)
        if (strcmp(run->identities.items[i].name, name) == 0) return &run->identities.items[i];
    ck_abort_msg("no fact %s", name);
    return NULL;
}

/* Facts that a test cannot really change: another machine, another build. */
TESTS(machine_and_builds_are_facts, 14) {
    static const char *const refused[] = {"the device's instruction set",
                                          "the device's backend",
                                          "device plugin",
                                          "model plugin",
                                          "data plugin",
                                          "tokenizer plugin",
                                          "optimizer plugin",
                                          "grid",
                                          "reduce",
                                          "[train] precision",
                                          "the model's config.json"};
    static const char *const allowed[] = {"strategy plugin", "policy plugin", "comm plugin"};
    const int n_refused = (int)(LENGTH(refused));
    const char *name = _i < n_refused ? refused[_i] : allowed[_i - n_refused];
    char was[512];
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_open(&run, NULL);
    strcpy(was, find(&run, name)->value);
    strcpy(find(&run, name)->value, "something else");
    fixture_log[0] = '\0';
    if (_i < n_refused) {
        ck_assert_int_eq(rig_try_resume(&run, false, &err), WEFT_E_USER);
        ck_assert_says(err, name);
        ck_assert_says(err, was);
        ck_assert_says(err, "something else");
    } else {
        rig_resume(&run);
        ck_assert_logged(name);
    }
    rig_close(&run);
}

TEST(all_differences_are_named_at_once) {
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_open(&run, "train.micro_batch=4", "run.seed=9", "train.clip=1", NULL);
    ck_assert_int_eq(rig_try_resume(&run, false, &err), WEFT_E_USER);
    ck_assert_says(err, "[train] micro_batch is 4, was 2");
    ck_assert_says(err, "[run] seed is 9, was 7");
    ck_assert_ptr_null(strstr(err.text, "clip")); /* this one may change */
    for (int32_t i = 0; i < run.identities.n; i++) strcpy(run.identities.items[i].value, "x");
    for (int32_t i = 0; i < run.identities.n; i++) memset(run.identities.items[i].value, 'y', 500);
    ck_assert_int_eq(rig_try_resume(&run, false, &err), WEFT_E_USER);
    ck_assert_says(err, " more\n");
    ck_assert_says(err, "uninterrupted run"); /* the advice is printed with lists of any length */
    rig_close(&run);
}

TEST(another_model_is_refused_even_inexactly) {
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_write_config(scratch_path("base"), 24, 43);
    rig_open(&run, NULL);
    for (int inexact = 0; inexact < 2; inexact++) {
        ck_assert_int_eq(rig_try_resume(&run, inexact != 0, &err), WEFT_E_USER);
        ck_assert_says(err, "6 of another shape (");
        ck_assert_says(err, ". This checkpoint is of another model. Fix: resume with its [model] path and base");
        ck_assert_ptr_null(strstr(err.text, "config.json is sha256"));
        ck_assert_ptr_null(strstr(err.text, "--resume=inexact"));
    }
    rig_close(&run);
}

/* Returns the number of non-zero elements of a state. */
static int64_t filled(const rig *run, int64_t state) {
    const weft_engine *engine = run->session->engine;
    const int64_t n = engine->plan.layout->trainable_numel;
    float *values = calloc((size_t)n, sizeof *values);
    int64_t count = 0;
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(engine->kernels->read(engine->device, NULL, values, engine->state[state].ref, 4 * n, &err), err);
    for (int64_t i = 0; i < n; i++) count += values[i] != 0;
    free(values);
    return count;
}

TEST(inexact_starts_missing_states_at_zero_and_says_so) {
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_open(&run, "optimizer.plugin=sgd", "optimizer.momentum=0.9", NULL);
    ck_assert_int_eq(run.session->engine->plan.n_states, 1);
    rig_load(&run);
    rig_train(&run, 1); /* so that there is a state to reset */
    ck_assert_int_gt(filled(&run, 0), 0);
    fixture_log[0] = '\0';
    ck_assert_ok(rig_try_resume(&run, true, &err), err);
    ck_assert_int_eq(filled(&run, 0), 0);
    ck_assert_uint_eq(run.session->engine->updates, 0); /* its optimizer has made no updates */
    ck_assert_logged("all of it start at zero");
    ck_assert_logged("[optimizer] momentum is 0.9, was (none)");
    ck_assert_logged("[optimizer] beta1 is (none), was 0.9");
    rig_close(&run);
}

TEST(inexact_with_more_parameters_keeps_the_states_there_are) {
    int64_t some = 0;
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    rig_start(&run, "train.trainable=last:1", "checkpoint.dtype=bf16", NULL);
    rig_train(&run, 6);
    rig_save(&run);
    some = filled(&run, 1);
    ck_assert_int_gt(some, 0);
    rig_close(&run);
    fixture_log[0] = '\0';
    rig_open(&run, "checkpoint.dtype=bf16", NULL);
    ck_assert_ok(rig_try_resume(&run, true, &err), err);
    ck_assert_uint_eq(run.state.step, 6);
    ck_assert_int_eq(filled(&run, 1), some);
    ck_assert_uint_eq(run.session->engine->updates, 6);
    ck_assert_logged("lacks 11 of the parameters that are trained now: they start at zero");
    rig_train(&run, 7);
    ck_assert_int_gt(filled(&run, 1), some);
    rig_close(&run);
}

/* Compares a parameter of this rank, in bf16, to the rounded masters of the checkpoint. */
static void expect_rounded(const rig *run, const char *checkpoint, const char *name) {
    const weft_engine *engine = run->session->engine;
    const weft_parameter *p = &engine->plan.declared->parameters[weft_declared_find(engine->plan.declared, name)];
    const int64_t bytes = weft_dtype_span(WEFT_BF16, p->numel);
    const weft_ref ref = engine->parameter_refs[p - engine->plan.declared->parameters];
    weft_error err = WEFT_ERROR_INIT;
    weft_safetensors *file = NULL;
    char path[700], *kept = malloc((size_t)bytes), *want = malloc((size_t)bytes);
    (void)snprintf(path, sizeof path, "%s/state/master.safetensors", checkpoint);
    ck_assert_ok(weft_safetensors_open(&file, path, &err), err);
    ck_assert_int_eq(p->dtype, WEFT_BF16);
    ck_assert(weft_convert(want, WEFT_BF16, weft_safetensors_find(file, name)->data, WEFT_F32, p->numel));
    ck_assert_ok(engine->kernels->read(engine->device, NULL, kept, ref, bytes, &err), err);
    ck_assert_int_eq(memcmp(kept, want, (size_t)bytes), 0);
    weft_safetensors_close(file);
    free(kept);
    free(want);
}

/* Parameters trained on a bf16 base have more bits than a run that freezes them keeps. */
TEST(inexact_says_what_is_rounded) {
    static const char warning[] = "8 frozen parameters are kept in bf16 as the base has them";
    char base[600], checkpoint[600];
    weft_error err = WEFT_ERROR_INIT;
    rig run;
    (void)snprintf(base, sizeof base, "model.path=%s/step-6", rig_directory());
    (void)snprintf(checkpoint, sizeof checkpoint, "%s/step-8", rig_directory());
    rig_start(&run, "checkpoint.dtype=bf16", NULL);
    rig_train(&run, 6);
    rig_save(&run);
    rig_close(&run);
    rig_start(&run, base, "model.start=weights", "train.precision=bf16", NULL);
    rig_train(&run, 8);
    rig_save(&run);
    fixture_log[0] = '\0';
    ck_assert_ok(rig_try_resume(&run, true, &err), err);
    ck_assert_ptr_null(strstr(fixture_log, "kept in bf16")); /* all parameters are trained */
    rig_close(&run);
    rig_open(&run, base, "model.start=weights", "train.precision=bf16", "train.trainable=last:1", NULL);
    ck_assert_int_eq(rig_try_resume(&run, false, &err), WEFT_E_USER);
    fixture_log[0] = '\0';
    ck_assert_ok(rig_try_resume(&run, true, &err), err);
    ck_assert_uint_eq(run.state.step, 8);
    ck_assert_logged(warning);
    ck_assert_logged("use that checkpoint as [model] path");
    expect_rounded(&run, checkpoint, "model.layers.0.mlp.up_proj.weight");
    rig_close(&run);
}

TEST(spelling_of_config_json_does_not_count) {
    const char *path = scratch_path("base/config.json");
    char *text = read_bytes(path, NULL), wider[2048];
    rig run;
    ck_assert_int_eq(text[0], '{');
    (void)snprintf(wider, sizeof wider, "  {\n\n  %s", text + 1);
    write_text(path, wider);
    free(text);
    rig_reopen(&run, NULL);
    rig_close(&run);
}

int main(void) {
    return run_tests(test_case("identities", 300, setup, scratch_remove));
}
