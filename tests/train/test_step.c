/* tests/train/test_step.c: effects of one step: selection of trained parameters, non-finite numbers, and a step without
 * a target. */
#include "golden.h"
#include "run/engine.h"
#include "suite.h"
#include "train_rig.h"
#include "layout_offset.h"

#include <fnmatch.h>
#include <math.h>

#define ADAMW "optimizer.plugin=adamw", "optimizer.weight_decay=0.01"

/* ---- trained parameters ---- */

/* trained: fnmatch patterns of the names that [train] trainable must select; NULL-terminated. */
typedef struct choice {
    const char *model, *trainable;
    const char *trained[4];
    int32_t segments; /* with a BACKWARD: from the lowest trained one up to the head */
} choice;

static const choice choices[] = {
    {"llama-gqa", "train.trainable=all", {"*"}, 6},
    {"llama-gqa", "train.trainable=last:1", {"model.layers.1.*"}, 3},
    {"llama-gqa", "train.trainable=last:2", {"model.layers.[01].*"}, 5},
    {"llama-gqa", "train.trainable=first:1", {"model.layers.0.*"}, 5},
    {"llama-gqa", "train.trainable=head", {"lm_head.weight"}, 1},
    {"llama-gqa", "train.trainable=head, last:1", {"lm_head.weight", "model.layers.1.*"}, 3},
    {"llama-gqa", "train.trainable=*norm.weight", {"*norm.weight"}, 5},
    {"llama-gqa", "train.trainable=model.layers.1.mlp.*,model.norm.weight", {"*.1.mlp.*", "model.norm.*"}, 2},
    {"llama-gqa", "train.trainable=model.embed_tokens.weight", {"model.embed_tokens.weight"}, 6},
    {"llama-gqa", "train.trainable=*self_attn.q_proj.weight", {"*.q_proj.*"}, 5},
    {"llama-tied", "train.trainable=head", {"model.embed_tokens.weight"}, 8}, /* one storage under two names */
    {"llama-tied", "train.trainable=first:2", {"model.layers.0.*", "model.layers.1.*"}, 7},
};

static bool chosen(const choice *c, const char *name) {
    for (int i = 0; i < 4 && c->trained[i] != NULL; i++)
        if (fnmatch(c->trained[i], name, 0) == 0) return true;
    return false;
}

static int32_t count_backwards(const weft_program *program) {
    int32_t n = 0;
    for (int32_t i = 0; i < program->n_instructions; i++)
        n += program->instructions[i].kind == WEFT_INSTRUCTION_BACKWARD;
    return n;
}

/* Only trained parameters have gradients and states. A frozen unit has no micro-batch gradient, and a segment below all
 * trained parameters has no tape. */
static void check_memory(const weft_engine *engine, const choice *c, int32_t micro_batches) {
    const weft_program *program = engine->plan.train.program;
    int64_t trained = 0;
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        ck_assert_msg(p->trainable == chosen(c, p->name), "%s: %s", c->trainable, p->name);
        if (p->trainable)
            trained += (p->numel + engine->plan.layout->grid - 1) / engine->plan.layout->grid *
                       engine->plan.layout->grid;
    }
    ck_assert_int_eq(engine->account.taken[WEFT_ACCOUNT_GRADIENTS], 4 * trained);
    ck_assert_int_eq(engine->account.taken[WEFT_ACCOUNT_OPTIMIZER], 8 * trained);
    ck_assert_int_eq(count_backwards(program), c->segments * micro_batches);
    for (int32_t i = 0; i < program->n_slots; i++) {
        const weft_slot *slot = &program->slots[i];
        if (slot->kind == WEFT_SLOT_MICRO_BATCH_GRADIENT)
            ck_assert_int_ge(engine->plan.layout->units[slot->unit].trained, 0);
        if (slot->kind == WEFT_SLOT_TAPE)
            ck_assert_int_ge(slot->segment, engine->plan.declared->n_segments - c->segments);
    }
}

/* Selected parameters have changed; the others have their initial bits. */
static void check_moved(const weft_engine *engine, const choice *c, const float *before, const float *after) {
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        const int64_t at = layout_offset(engine->plan.layout, p) / 4;
        ck_assert_msg(same_floats(before + at, after + at, p->numel) == !chosen(c, p->name), "%s: %s %s", c->trainable,
                      p->name, chosen(c, p->name) ? "did not move" : "moved");
    }
}

TESTS(frozen_parameters_do_not_change_and_need_no_memory, LENGTH(choices)) {
    const choice *c = &choices[_i];
    const char *overrides[] = {ADAMW, c->trainable};
    train_rig rig;
    float *before = NULL, *after = NULL;
    train_rig_golden(&rig, c->model, 3, false, overrides, 3);
    check_memory(rig.engine, c, 3);
    before = train_rig_parameters(&rig);
    train_rig_steps(&rig, 5);
    after = train_rig_parameters(&rig);
    check_moved(rig.engine, c, before, after);
    free(before);
    free(after);
    train_rig_close(&rig);
}

/* Frozen parameters do not change the gradients of trained ones. */
TEST(a_gradient_does_not_depend_on_what_else_is_trained) {
    const char *all[] = {ADAMW}, *some[] = {ADAMW, "train.trainable=model.layers.0.*,model.norm.weight"};
    train_rig whole, part;
    train_rig_golden(&whole, "llama-gqa", 3, false, all, 2);
    train_rig_golden(&part, "llama-gqa", 3, false, some, 3);
    ck_assert(train_rig_step(&whole, 1).loss_sum == train_rig_step(&part, 1).loss_sum);
    for (int32_t i = 0; i < part.engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &part.engine->plan.declared->parameters[i],
                             *q = &whole.engine->plan.declared->parameters[i];
        float *a = NULL, *b = NULL;
        if (!p->trainable) continue;
        a = read_floats(part.engine,
                        weft_ref_at(part.engine->gradients.ref, layout_offset(part.engine->plan.layout, p)), p->numel);
        b = read_floats(whole.engine,
                        weft_ref_at(whole.engine->gradients.ref, layout_offset(whole.engine->plan.layout, q)),
                        p->numel);
        ck_assert_msg(same_floats(a, b, p->numel), "the gradient of %s", p->name);
        free(a);
        free(b);
    }
    train_rig_close(&whole);
    train_rig_close(&part);
}

/* ---- non-finite numbers ---- */

typedef struct poisoned {
    const char *parameter, *named; /* text that the message must contain */
    float value;
} poisoned;

static const poisoned bad[] = {
    {"model.embed_tokens.weight", "embed", NAN},
    {"model.layers.0.self_attn.k_proj.weight", "layers.0.attn", NAN},
    {"model.layers.1.self_attn.q_proj.weight", "layers.1.attn", NAN},
    {"model.layers.1.self_attn.v_proj.weight", "layers.1.attn", 1e38f},
    {"model.layers.1.self_attn.o_proj.weight", "layers.1.attn", INFINITY},
    {"model.layers.1.input_layernorm.weight", "layers.1.attn", 1e38f},
    {"model.layers.1.post_attention_layernorm.weight", "layers.1.mlp", 1e38f},
    {"model.layers.1.mlp.gate_proj.weight", "layers.1.mlp", NAN},
    {"model.layers.1.mlp.up_proj.weight", "layers.1.mlp", -INFINITY},
    {"model.layers.1.mlp.down_proj.weight", "layers.1.mlp", NAN},
    {"model.norm.weight", "head", NAN},
    {"lm_head.weight", "head", INFINITY},
    {"model.layers.0.self_attn.o_proj.weight", "layers.0.mlp", 1e38f}, /* a finite carry with infinite squares */
    {"model.layers.0.mlp.down_proj.weight", "layers.1.attn", 1e38f},
    {"model.layers.1.self_attn.o_proj.weight", "layers.1.mlp", 1e30f},
    {"model.layers.1.mlp.up_proj.weight", "head", 1e38f},
    {"model.norm.weight", "gradient of lm_head.weight", 1e38f}, /* the loss is finite, its gradient is not */
};

/* Stores a value in element 7 of a parameter and returns the previous one. */
static float put(const weft_engine *engine, const char *name, float value) {
    const int32_t p = weft_declared_find(engine->plan.declared, name);
    weft_ref at;
    weft_error err = WEFT_ERROR_INIT;
    float old = 0.0f;
    ck_assert_int_ge(p, 0);
    at = weft_ref_at(engine->parameter_refs[p], 4 * 7);
    ck_assert_int_eq(engine->kernels->read(engine->device, NULL, &old, at, 4, &err), WEFT_OK);
    ck_assert_int_eq(engine->kernels->write(engine->device, NULL, at, &value, 4, &err), WEFT_OK);
    return old;
}

/* Tests each bad value: the step fails, reports the location, and changes no state. */
static void fail_each(train_rig *rig, float *(*state)(const train_rig *)) {
    for (int i = 0; i < (int)LENGTH(bad); i++) {
        float *before = state(rig), *after = NULL;
        char instruction[80];
        const float old = put(rig->engine, bad[i].parameter, bad[i].value);
        weft_error err = WEFT_ERROR_INIT;
        weft_step_result result = {.loss_sum = -1.0};
        const weft_status status = weft_stepper_train(rig->stepper, &result, 7, 1e-3, 0.5, &err);
        ck_assert_msg(status == WEFT_E_NUMERIC, "%g in %s: status %d", (double)bad[i].value, bad[i].parameter,
                      (int)status);
        ck_assert_msg(strncmp(err.text, "step 7: ", 8) == 0 && strstr(err.text, bad[i].named) != NULL, "%g in %s: %s",
                      (double)bad[i].value, bad[i].parameter, err.text);
        if (strstr(bad[i].named, "gradient") == NULL) { /* and which instruction, also for the head */
            (void)snprintf(instruction, sizeof instruction, "%s micro-batch 0: the ", bad[i].named);
            ck_assert_msg(strncmp(err.text, "step 7: the loss is not finite; step 7, instruction ", 46) == 0 &&
                              strstr(err.text, instruction) != NULL,
                          "%s", err.text);
        }
        ck_assert_double_eq(result.loss_sum, -1.0); /* untouched */
        (void)put(rig->engine, bad[i].parameter, old);
        after = state(rig);
        ck_assert_msg(same_floats(before, after, rig->engine->plan.layout->trainable_numel), "%s", bad[i].parameter);
        free(before);
        free(after);
    }
}

static float *second_moment(const train_rig *rig) {
    return read_floats(rig->engine, rig->engine->state[1].ref, rig->engine->plan.layout->trainable_numel);
}

TESTS(a_number_that_is_not_finite_stops_with_step_and_segment, 2) {
    const char *overrides[] = {ADAMW,
                               _i == 0 ? "train.activation_checkpointing=no" : "train.activation_checkpointing=yes"};
    train_rig rig;
    train_rig_golden(&rig, "llama-gqa", _i == 0 ? 1 : 3, true, overrides, 3);
    train_rig_steps(&rig, 2);
    fail_each(&rig, train_rig_parameters);
    fail_each(&rig, second_moment);
    (void)train_rig_step(&rig, 3); /* no effect remains */
    train_rig_close(&rig);
}

TEST(an_evaluation_that_is_not_finite_says_where) {
    const char *overrides[] = {ADAMW};
    train_rig rig;
    weft_error err = WEFT_ERROR_INIT;
    weft_step_result result = {0};
    train_rig_golden(&rig, "llama-gqa", 1, true, overrides, 2);
    train_rig_steps(&rig, 2);
    (void)put(rig.engine, "model.layers.1.mlp.up_proj.weight", NAN);
    ck_assert_int_eq(weft_stepper_evaluate(rig.stepper, &result, WEFT_SPLIT_VALIDATION, 0, &err), WEFT_E_NUMERIC);
    ck_assert_msg(strncmp(err.text, "evaluation: ", 12) == 0 && strstr(err.text, "layers.1.mlp") != NULL, "%s",
                  err.text);
    ck_assert_msg(strstr(err.text, "; the weights are as update 2 by optimizer:adamw (/") != NULL, "%s", err.text);
    train_rig_close(&rig);
}

/* ---- no target ---- */

TEST(a_step_without_a_target_is_skipped) {
    const char *overrides[] = {ADAMW};
    row_data data, empty;
    train_rig rig;
    weft_step_result result;
    float *before = NULL, *after = NULL, *moment = NULL, *moment_after = NULL;
    row_data_golden(&data, "llama-tied");
    row_data_golden(&empty, "llama-tied");
    memset(empty.weights, 0, (size_t)empty.rows * (size_t)empty.length * sizeof *empty.weights);
    train_rig_begin(&rig, "llama-tied", &data, 3, true, overrides, 2);
    train_rig_steps(&rig, 2);
    before = train_rig_parameters(&rig);
    moment = second_moment(&rig);
    rig.stepper->data = (weft_data *)(void *)&empty;
    result = train_rig_step(&rig, 3);
    after = train_rig_parameters(&rig);
    moment_after = second_moment(&rig);
    ck_assert(result.skipped && result.n_targets == 0 && result.loss_sum == 0.0 && result.norm == 0.0);
    ck_assert(same_floats(before, after, rig.engine->plan.layout->numel));
    ck_assert(same_floats(moment, moment_after, rig.engine->plan.layout->trainable_numel));
    ck_assert(train_rig_evaluate(&rig) == 0.0);
    rig.stepper->data = (weft_data *)(void *)&data;
    ck_assert(!train_rig_step(&rig, 4).skipped);
    free(before);
    free(after);
    free(moment);
    free(moment_after);
    train_rig_close(&rig);
    row_data_free(&data);
    row_data_free(&empty);
}

/* Returns the parameters after one step per letter; '-' is a step without targets. The learning rate is constant. */
static float *train_with_gaps(const char *const *overrides, size_t n, const char *steps, int64_t *numel) {
    row_data data, empty;
    train_rig rig;
    float *parameters = NULL;
    row_data_golden(&data, "llama-tied");
    row_data_golden(&empty, "llama-tied");
    memset(empty.weights, 0, (size_t)empty.rows * (size_t)empty.length * sizeof *empty.weights);
    train_rig_begin(&rig, "llama-tied", &data, 1, false, overrides, n);
    for (uint64_t s = 1; steps[s - 1] != '\0'; s++) {
        rig.stepper->data = (weft_data *)(void *)(steps[s - 1] == '-' ? &empty : &data);
        ck_assert_int_eq(train_rig_step(&rig, s).skipped, steps[s - 1] == '-');
    }
    ck_assert_uint_eq(rig.engine->updates, 3);
    parameters = train_rig_parameters(&rig);
    *numel = rig.engine->plan.layout->numel;
    train_rig_close(&rig);
    row_data_free(&data);
    row_data_free(&empty);
    return parameters;
}

static const char *const counting[][4] = {
    {ADAMW, "optimizer.beta2=0.9", "optimizer.beta1=0.5"},
    {"optimizer.plugin=sgd", "optimizer.momentum=0.9", "optimizer.dampening=0.5", "optimizer.weight_decay=0.01"},
};

/* PyTorch's optimizers count their updates, for bias correction and for the first, undamped buffer. */
TESTS(an_optimizer_counts_updates_not_steps, 2) {
    int64_t n = 0;
    float *three = train_with_gaps(counting[_i], 4, "xxx", &n), *five = train_with_gaps(counting[_i], 4, "-x-xx", &n);
    ck_assert(same_floats(three, five, n));
    free(three);
    free(five);
}

/* A micro-batch without a target has no effect on COUNT and gradients. */
TEST(a_micro_batch_without_a_target_adds_nothing) {
    const char *overrides[] = {ADAMW};
    row_data data;
    train_rig rig;
    weft_plan_spec spec;
    weft_step_result two, three;
    row_data_golden(&data, "llama-tied");
    memset(data.weights + 2 * data.length, 0, (size_t)data.length * sizeof *data.weights);
    spec = train_rig_spec(&data, 3, false);
    train_rig_open(&rig, "llama-tied", &data, overrides, 2);
    train_rig_start(&rig, &spec);
    three = train_rig_step(&rig, 1);
    train_rig_close(&rig);
    data.rows = 2;
    spec.micro_batches = 2;
    train_rig_open(&rig, "llama-tied", &data, overrides, 2);
    train_rig_start(&rig, &spec);
    two = train_rig_step(&rig, 1);
    ck_assert(three.n_targets == two.n_targets && three.loss_sum == two.loss_sum && three.norm == two.norm);
    train_rig_close(&rig);
    row_data_free(&data);
}

/* Loading weights again resets states to zero and the update count to 0. */
TEST(loading_again_resets_the_state) {
    const char *overrides[] = {ADAMW};
    train_rig rig;
    weft_error err = WEFT_ERROR_INIT;
    float *first = NULL, *second = NULL;
    train_rig_golden(&rig, "llama-tied", 3, false, overrides, 2);
    train_rig_steps(&rig, 3);
    first = train_rig_parameters(&rig);
    ck_assert_ok(weft_engine_load(rig.engine, &err), err);
    train_rig_steps(&rig, 3);
    second = train_rig_parameters(&rig);
    ck_assert(same_floats(first, second, rig.engine->plan.layout->numel));
    free(first);
    free(second);
    train_rig_close(&rig);
}

int main(void) {
    return run_tests(test_case("step", 300, NULL, NULL));
}
