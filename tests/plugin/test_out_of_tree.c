/* A plugin author needs only the installed tree: it is installed and moved, and the template is built against it in
 * another X */
#include "suite.h"
#include "workshop.h"

#include <math.h>

#include "golden.h"
#include "layout_offset.h"
#include <weft/optimizer.h>

#define BOUND 2e-6 /* relative norm */
#define LR    3e-3
#define BETA1 0.9
#define BETA2 0.99
#define DECAY 0.1

static char installed[400], by_cmake[600], by_pkg_config[600];

/* Runs a command with scratch paths as arguments; prints its output only if it fails. */
static void run(const char *format, ...) WEFT_PRINTF(1, 2);
static void run(const char *format, ...) {
    char command[6000];
    size_t n;
    va_list args;
    (void)snprintf(command, sizeof command, "cd %s && { ", scratch);
    n = strlen(command);
    va_start(args, format);
    (void)vsnprintf(command + n, sizeof command - n, format, args);
    va_end(args);
    n = strlen(command);
    (void)snprintf(command + n, sizeof command - n, "; } > log 2>&1 || { cat log; false; }");
    workshop_run(command);
}

static void install_and_build(void) {
    const char *build = getenv("WEFT_BUILD");
    ck_assert_msg(build != NULL, "WEFT_BUILD must name the build directory; ctest sets it");
    scratch_make();
    (void)snprintf(installed, sizeof installed, "%s/moved", scratch);
    (void)snprintf(by_cmake, sizeof by_cmake, "%s/elsewhere/build/weft-optimizer-lion.so", scratch);
    (void)snprintf(by_pkg_config, sizeof by_pkg_config, "%s/pc/weft-optimizer-lion.so", scratch);
    run("cmake --install %s --prefix %s/installed && mv installed moved && "
        "cp -r moved/share/weft/template/optimizer-lion elsewhere && mkdir pc",
        build, scratch);
    run("cmake -S elsewhere -B elsewhere/build -DCMAKE_PREFIX_PATH=%s && cmake --build elsewhere/build", installed);
    run("export PKG_CONFIG_PATH=$(dirname $(find %s -name weft.pc)) && "
        "cc -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags weft) elsewhere/lion.c "
        "-o %s $(pkg-config --libs weft) && test -d $(pkg-config --variable=plugindir weft)",
        installed, by_pkg_config);
}

/* ---- a model trained with it ---- */

#define TRAINED       24   /* steps */
#define MICRO_BATCHES 2    /* of one sequence each; the batch has three, so the sequences of a step change */
#define UNDECIDED     1e-5 /* relative to the terms of a sum: closer to zero, the signs in fp32 and fp64 may differ */

typedef struct exact_run {
    const weft_engine *engine;
    bool matrices_only; /* weight decay */
    double *w, *m;      /* in the order of the flat region */
    int64_t signs, undecided, clipped;
} exact_run;

/* Copies the flat region; freed by the caller. */
static float *region(const weft_engine *engine, weft_ref ref) {
    return read_floats(engine, ref, engine->plan.layout->numel);
}

static void exact_open(exact_run *self, const weft_engine *engine, bool matrices_only) {
    const int64_t n = engine->plan.layout->numel;
    float *start = region(engine, engine->parameters.ref);
    const exact_run made = {.engine = engine,
                            .matrices_only = matrices_only,
                            .w = calloc((size_t)n, sizeof *made.w),
                            .m = calloc((size_t)n, sizeof *made.m)};
    ck_assert(made.w != NULL && made.m != NULL);
    ck_assert_int_eq(engine->plan.layout->trainable_numel, n); /* so gradients and parameters have the same layout */
    for (int64_t i = 0; i < n; i++) made.w[i] = (double)start[i];
    free(start);
    *self = made;
}

static void exact_close(exact_run *self) {
    free(self->w);
    free(self->m);
}

/* Computes the coefficient of a sum of gradients independently, and compares the device's value to it. */
static double exact_coefficient(exact_run *self, const float *sum, double clip, const weft_step_result *result) {
    const double count = (double)result->n_targets;
    double squares = 0, norm, coefficient;
    float *found = read_floats(self->engine, self->engine->scalars.coefficient, 1);
    for (int64_t i = 0; i < self->engine->plan.layout->numel; i++) squares += (double)sum[i] * (double)sum[i];
    norm = sqrt(squares) / count;
    coefficient = fmin(1.0, clip / (norm + 1e-6)) / count;
    ck_assert_double_lt(fabs(result->norm / norm - 1), 1e-10);
    ck_assert_double_lt(fabs((double)*found / coefficient - 1), 1.2e-7);
    self->clipped += norm > clip;
    free(found);
    return coefficient;
}

/* before, after: the run's own weights, used only for a sign that fp64 cannot determine reliably. */
static double exact_sign(exact_run *self, double d, double terms, double before, double after, double lr,
                         double decay) {
    self->signs++;
    if (fabs(d) > UNDECIDED * terms || terms == 0) return (d > 0) - (d < 0);
    self->undecided++;
    return (double)lround((before - after) / lr - decay * before);
}

static void exact_step(exact_run *self, const float *sum, double coefficient, const float *before, const float *after,
                       double lr) {
    for (int32_t k = 0; k < self->engine->plan.declared->n_parameters; k++) {
        const weft_parameter *p = &self->engine->plan.declared->parameters[k];
        const double decay = self->matrices_only && p->rank < 2 ? 0 : DECAY;
        const int64_t first = layout_offset(self->engine->plan.layout, p) / 4;
        for (int64_t i = first; i < first + p->numel; i++) {
            const double g = coefficient * (double)sum[i], d = BETA1 * self->m[i] + (1 - BETA1) * g;
            const double terms = BETA1 * fabs(self->m[i]) + (1 - BETA1) * fabs(g);
            const double sign = exact_sign(self, d, terms, (double)before[i], (double)after[i], lr, decay);
            self->w[i] -= lr * (sign + decay * self->w[i]);
            self->m[i] = BETA2 * self->m[i] + (1 - BETA2) * g;
        }
    }
}

/* Runs one step, then the same step in double from the same sum of gradients. */
static void train_both(exact_run *self, golden_engine *g, uint64_t step) {
    const weft_engine *engine = g->engine;
    const double lr = LR * (1 - (double)(step - 1) / (2 * TRAINED)), clip = step % 3 == 0 ? 100 : 0.5;
    float *before = region(engine, engine->parameters.ref), *after = NULL, *sum = NULL;
    weft_step_result result = {0};
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_msg(weft_stepper_train(g->stepper, &result, step, lr, clip, &err) == WEFT_OK, "%s", err.text);
    after = region(engine, engine->parameters.ref);
    sum = region(engine, engine->gradients.ref);
    exact_step(self, sum, exact_coefficient(self, sum, clip, &result), before, after, lr);
    free(before);
    free(after);
    free(sum);
}

static double off(const float *found, const double *exact, int64_t n) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)found[i] - exact[i]) * ((double)found[i] - exact[i]);
        size += exact[i] * exact[i];
    }
    return sqrt(difference / size);
}

/* Compares every parameter and its momentum; checks that the model has changed. */
static void exact_compare(const exact_run *self, const float *start) {
    const weft_engine *engine = self->engine;
    float *w = region(engine, engine->parameters.ref), *m = region(engine, engine->state[0].ref);
    for (int32_t k = 0; k < engine->plan.declared->n_parameters; k++) {
        const weft_parameter *p = &engine->plan.declared->parameters[k];
        const int64_t at = layout_offset(engine->plan.layout, p) / 4;
        ck_assert_msg(off(w + at, self->w + at, p->numel) < BOUND, "%s is off by %.2e", p->name,
                      off(w + at, self->w + at, p->numel));
        ck_assert_msg(off(m + at, self->m + at, p->numel) < BOUND, "the momentum of %s is off by %.2e", p->name,
                      off(m + at, self->m + at, p->numel));
        ck_assert_msg(off(start + at, self->w + at, p->numel) > 1e-2, "%s has hardly moved", p->name);
    }
    free(w);
    free(m);
}

static const struct {
    const char *model, *decay, *built;
} trained[] = {{"llama-tied", "optimizer.decay=all", by_cmake},
               {"llama-gqa", "optimizer.decay=matrices", by_pkg_config}};

TESTS(a_model_trained_with_it_equals_the_reference, 2) {
    char plugin[700];
    const char *overrides[] = {plugin, "optimizer.beta2=0.99", "optimizer.weight_decay=0.1", trained[_i].decay};
    golden_batch batch;
    golden_engine g;
    exact_run exact;
    float *start = NULL;
    (void)snprintf(plugin, sizeof plugin, "optimizer.plugin=%s", trained[_i].built);
    golden_batch_open(&batch, trained[_i].model);
    ck_assert_int_eq(batch.rows, MICRO_BATCHES + 1);
    golden_engine_open(&g, &batch, trained[_i].model, MICRO_BATCHES, overrides, 4);
    ck_assert_str_eq(g.run->parts[WEFT_PART_OPTIMIZER].loaded->path, trained[_i].built);
    exact_open(&exact, g.engine, strstr(trained[_i].decay, "matrices") != NULL);
    start = region(g.engine, g.engine->parameters.ref);
    for (uint64_t step = 1; step <= TRAINED; step++) train_both(&exact, &g, step);
    exact_compare(&exact, start);
    ck_assert_int_eq(exact.clipped, TRAINED - TRAINED / 3); /* and the others not */
    ck_assert_int_lt(exact.undecided, exact.signs / 1000);
    free(start);
    exact_close(&exact);
    golden_engine_close(&g);
    golden_batch_close(&batch);
}

/* ---- the installed program ---- */

static void expect_output(const char *command, const char *fragment) {
    char text[20000] = "";
    FILE *output = popen(command, "r");
    ck_assert_ptr_nonnull(output);
    text[fread(text, 1, sizeof text - 1, output)] = 0;
    ck_assert_msg(pclose(output) == 0, "%s failed: %s", command, text);
    ck_assert_msg(strstr(text, fragment) != NULL, "\"%s\" is not in the output of %s:\n%s", fragment, command, text);
}

TEST(the_moved_program_finds_its_plugins_and_the_new_one) {
    char command[2000], found[1000];
    (void)snprintf(command, sizeof command,
                   "cd / && unset WEFT_PLUGIN_PATH && %s/bin/weft plugins describe optimizer:adamw", installed);
    (void)snprintf(found, sizeof found, "file    %s/", installed);
    expect_output(command, found);
    (void)snprintf(command, sizeof command,
                   "WEFT_PLUGIN_PATH=%s/elsewhere/build %s/bin/weft plugins describe optimizer:lion", scratch,
                   installed);
    expect_output(command, "optimizer:lion 0.1.0 (optimizer/1)");
    expect_output(command, "beta2         0.99");
    (void)snprintf(command, sizeof command, "WEFT_PLUGIN_PATH=%s/elsewhere/build %s/bin/weft plugins list --json",
                   scratch, installed);
    expect_output(command, "\"id\": \"lion\"");
    expect_output(command, "\"id\": \"sgd\"");
    (void)snprintf(command, sizeof command,
                   "cd %s/elsewhere/build && %s/bin/weft plugins describe "
                   "optimizer:./weft-optimizer-lion.so",
                   scratch, installed);
    expect_output(command, "optimizer:lion 0.1.0 (optimizer/1)");
}

TEST(the_moved_program_trains_and_resumes_with_it) {
    const char *quick = "train.global_batch=2 train.micro_batch=1 data.context=64 data.validation=none eval.every=none "
                        "checkpoint.every=2";
    char command[4000];
    run("unset WEFT_PLUGIN_PATH && %s/bin/weft train %s/configs/chess.ini optimizer.plugin=%s optimizer.lr=1e-4 "
        "run.out=trained train.steps=2 %s",
        installed, workshop_source(), by_cmake, quick);
    run("unset WEFT_PLUGIN_PATH && %s/bin/weft train %s/configs/chess.ini optimizer.plugin=%s optimizer.lr=1e-4 "
        "run.out=trained train.steps=4 %s --resume",
        installed, workshop_source(), by_cmake, quick);
    (void)snprintf(command, sizeof command,
                   "cd %s/trained && wc -l metrics.jsonl && cat config.ini && ls model "
                   "checkpoints/step-4/state",
                   scratch);
    expect_output(command, "4 metrics.jsonl");
    expect_output(command, by_cmake);
    expect_output(command, "exp_avg.safetensors");
    expect_output(command, "model.safetensors");
}

/* ---- a wrap policy ---- */

#define POLICY_RUN                                                                                                     \
    "unset WEFT_PLUGIN_PATH && %s/bin/weft train %s/configs/chess.ini run.out=%s train.steps=3 train.global_batch=2 "  \
    "train.micro_batch=1 data.context=64 data.validation=none eval.every=none optimizer.lr=1e-4 "

TEST(a_policy_of_sixty_lines_is_used_and_changes_no_bit) {
    char command[4000];
    run("cp %s/tests/plugin/policy_runs.c . && export PKG_CONFIG_PATH=$(dirname $(find %s -name weft.pc)) && "
        "test $(wc -l < policy_runs.c) -le 65 && "
        "cc -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags weft) policy_runs.c "
        "-o policy_runs.so $(pkg-config --libs weft)",
        workshop_source(), installed);
    run(POLICY_RUN, installed, workshop_source(), "wrapped-block");
    run(POLICY_RUN "policy.plugin=./policy_runs.so policy.blocks=3", installed, workshop_source(), "wrapped-runs");
    run("cmp wrapped-block/model/model.safetensors wrapped-runs/model/model.safetensors");
    (void)snprintf(command, sizeof command,
                   "cd %s && %s/bin/weft plan %s/configs/chess.ini policy.plugin=./policy_runs.so policy.blocks=3 "
                   "--print-wrapping",
                   scratch, installed, workshop_source());
    expect_output(command, "in 4 units");
    expect_output(command, "unit model.layers.0..model.layers.2\n");
    expect_output(command, "unit model.layers.3..model.layers.4\n");
}

TEST(a_policy_that_leaves_something_out_is_named_with_its_file) {
    char command[4000];
    run("export PKG_CONFIG_PATH=$(dirname $(find %s -name weft.pc)) && "
        "sed '/WEFT_UNIT_ROOT, WEFT_ALL_MODULES/d' %s/tests/plugin/policy_runs.c >holes.c && "
        "cc -std=c11 $(pkg-config --cflags weft) holes.c -o holes.so $(pkg-config --libs weft)",
        installed, workshop_source());
    (void)snprintf(command, sizeof command,
                   "cd %s && %s/bin/weft plan %s/configs/chess.ini policy.plugin=./holes.so 2>&1 || true", scratch,
                   installed, workshop_source());
    expect_output(command,
                  "/holes.so): the wrap policy leaves out "
                  "model.norm.weight of 47 parameters. Fix: end with claim_rest for WEFT_UNIT_ROOT, which claims all "
                  "remaining parameters. Correct the policy, or select another one of those in weft plugins list\n");
}

int main(void) {
    TCase *tests = tcase_create("out of tree");
    tcase_set_timeout(tests, 120);
    tcase_add_unchecked_fixture(tests, install_and_build, scratch_remove);
    return run_tests(tests);
}
