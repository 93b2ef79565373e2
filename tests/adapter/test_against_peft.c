/* Adapters, including an external one, against peft, or against torch for those that peft lacks
 * (tests/golden/make_adapters.py): loss, mean logits, every gradient and ten clipped AdamW steps, from the oracle's
 * initial values; and generation with a prefix and the key-value cache. */
#include "adapter/adapter.h"
#include "golden.h"
#include "scratch.h"
#include "suite.h"
#include "run/values.h"

#include <jansson.h>
#include <math.h>

enum { MOST_KEYS = 6 };

static char outside[4200]; /* overrides of the adapter built only against the SDK's headers (vera.c) */

static const struct {
    const char *name, *base;
    const char *keys[MOST_KEYS];
} adapters[] = {
    {"adapter-dora", "llama-gqa", {"adapter.plugin=lora", "adapter.r=3", "adapter.alpha=7", "adapter.dora=yes"}},
    {"adapter-ia3", "llama-gqa", {"adapter.plugin=ia3"}},
    {"adapter-prefix", "llama-bf16", {"adapter.plugin=prefix", "adapter.length=5"}},
    {"adapter-llama-adapter", "llama-bf16", {"adapter.plugin=llama-adapter", "adapter.length=4", "adapter.layers=1"}},
    {"adapter-vera", "llama-gqa", {outside, "adapter.r=5", "adapter.targets=q_proj,v_proj,down_proj"}},
    {"adapter-mlp-head",
     "llama-gqa",
     {"adapter.plugin=mlp-head", "adapter.mlp-head.layers=2", "adapter.mlp-head.width=13"}},
    {"adapter-mlp-head-tied",
     "llama-tied",
     {"adapter.plugin=mlp-head", "adapter.mlp-head.width=24", "adapter.mlp-head.activation=gelu"}}};
enum { PREFIX = 2, LLAMA_ADAPTER = 3, N_ADAPTERS = LENGTH(adapters) };

typedef struct bench {
    golden_batch batch;
    golden_engine g;
} bench;

static void begin_at_golden(const bench *b) {
    weft_engine *engine = b->g.engine;
    weft_error err = WEFT_ERROR_INIT;
    int32_t n = 0;
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        char name[256];
        (void)snprintf(name, sizeof name, "start.%s", p->name);
        ck_assert(p->added || !p->trainable);
        if (!p->added) continue;
        ck_assert_ok(engine->kernels->write(engine->device, NULL, engine->parameter_refs[i],
                                            golden_floats(&b->batch, name), p->numel * 4, &err),
                     err);
        n++;
    }
    ck_assert_int_gt(n, 0);
}

static void open_bench(bench *b, int i) {
    const char *overrides[3 + MOST_KEYS] = {"optimizer.plugin=adamw", "optimizer.lr=1e-3",
                                            "optimizer.weight_decay=0.01"};
    size_t n = 3;
    for (int k = 0; k < MOST_KEYS && adapters[i].keys[k] != NULL; k++) overrides[n++] = adapters[i].keys[k];
    golden_batch_open(&b->batch, adapters[i].name);
    golden_engine_open(&b->g, &b->batch, adapters[i].base, 1, overrides, n);
    begin_at_golden(b);
}

static void close_bench(bench *b) {
    golden_engine_close(&b->g);
    golden_batch_close(&b->batch);
}

TESTS(loss_gradients_and_ten_steps, N_ADAPTERS) {
    bench b;
    open_bench(&b, _i);
    golden_ten_steps(&b.g, &b.batch, false);
    close_bench(&b);
}

TESTS(evaluation_gives_loss_and_logits, N_ADAPTERS) {
    bench b;
    weft_error err = WEFT_ERROR_INIT;
    weft_hidden *hidden = NULL;
    weft_step_result result = {0};
    double *mean = NULL;
    open_bench(&b, _i);
    hidden = weft_hidden_create(b.g.engine);
    b.g.stepper->hidden = hidden;
    weft_hidden_begin(hidden);
    ck_assert_ok(weft_stepper_evaluate(b.g.stepper, &result, WEFT_SPLIT_VALIDATION, 0, &err), err);
    ck_assert_double_lt(fabs(result.loss_sum / golden_doubles(&b.batch, "loss_sum")[0] - 1.0), 1e-5);
    mean = calloc((size_t)hidden->width, sizeof *mean);
    weft_hidden_mean(hidden, mean);
    golden_compare_mean_logits(&b.g, &b.batch, mean, hidden->width);
    free(mean);
    weft_hidden_destroy(hidden);
    close_bench(&b);
}

/* ---- files ---- */

static void expect_start(const bench *b) {
    const weft_engine *engine = b->g.engine;
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        char name[256];
        float *found = NULL;
        if (!p->added) continue;
        (void)snprintf(name, sizeof name, "start.%s", p->name);
        found = read_floats(engine, engine->parameter_refs[i], p->numel);
        ck_assert_msg(memcmp(found, golden_floats(&b->batch, name), (size_t)p->numel * sizeof *found) == 0, "%s", name);
        free(found);
    }
}

static void expect_same_tensors(const char *directory, const char *golden) {
    weft_safetensors *ours = NULL, *theirs = NULL;
    weft_error err = WEFT_ERROR_INIT;
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/adapter_model.safetensors", directory);
    ck_assert_ok(weft_safetensors_open(&ours, path, &err), err);
    (void)snprintf(path, sizeof path, "%s/adapter_model.safetensors", golden);
    ck_assert_ok(weft_safetensors_open(&theirs, path, &err), err);
    ck_assert_int_eq(ours->n_tensors, theirs->n_tensors);
    for (int32_t i = 0; i < theirs->n_tensors; i++) {
        const weft_tensor *expected = &theirs->tensors[i], *found = weft_safetensors_find(ours, expected->name);
        ck_assert_msg(found != NULL, "no %s", expected->name);
        ck_assert_int_eq(found->rank, expected->rank);
        for (int32_t d = 0; d < found->rank; d++) ck_assert_int_eq(found->dims[d], expected->dims[d]);
        ck_assert_int_eq(memcmp(found->data, expected->data, (size_t)expected->bytes), 0);
    }
    weft_safetensors_close(ours);
    weft_safetensors_close(theirs);
}

/* Each written key has PEFT's value, except the base's path. */
static void expect_same_config(const char *directory, const char *golden) {
    char path[4200];
    json_t *ours = NULL, *theirs = NULL, *value = NULL;
    const char *key = NULL;
    (void)snprintf(path, sizeof path, "%s/adapter_config.json", directory);
    ours = json_load_file(path, 0, NULL);
    (void)snprintf(path, sizeof path, "%s/adapter_config.json", golden);
    theirs = json_load_file(path, 0, NULL);
    ck_assert_uint_ge(json_object_size(ours), 6);
    json_object_foreach(ours, key, value)
        ck_assert_msg(strcmp(key, "base_model_name_or_path") == 0 || json_equal(value, json_object_get(theirs, key)),
                      "%s", key);
    json_decref(ours);
    json_decref(theirs);
}

/* Files of PEFT are read, and saved again unchanged. PEFT's type selects the plugin, without a key. */
TEST_RANGE(files_are_those_of_peft, PREFIX, LLAMA_ADAPTER + 1) {
    char golden[4096], from[4200];
    const char *overrides[] = {"optimizer.plugin=adamw", from};
    const weft_adapter_origin origin = {.plugin = ""};
    weft_adapter_saving saving = {
        .origins = &origin, .directory = scratch_path("."), .base = "base", .dtype = WEFT_F32};
    weft_step_result result = {0};
    weft_region region;
    weft_error err = WEFT_ERROR_INIT;
    bench b;
    golden_path(golden, sizeof golden, adapters[_i].name);
    (void)snprintf(from, sizeof from, "adapter.from=%s", golden);
    golden_batch_open(&b.batch, adapters[_i].name);
    golden_engine_open(&b.g, &b.batch, adapters[_i].base, 1, overrides, 2);
    expect_start(&b);
    ck_assert_ok(weft_stepper_evaluate(b.g.stepper, &result, WEFT_SPLIT_VALIDATION, 0, &err), err);
    ck_assert_double_lt(fabs(result.loss_sum / golden_doubles(&b.batch, "loss_sum")[0] - 1.0), 1e-5);
    region = weft_engine_region(b.g.engine, WEFT_HOLD_PARAMETERS);
    saving.region = &region;
    ck_assert_ok(weft_adapter_save(&saving, NULL, &err), err);
    expect_same_tensors(saving.directory, golden);
    expect_same_config(saving.directory, golden);
    close_bench(&b);
}

/* ---- generation ---- */

/* Logits after a text, processed in one pass or position by position with the cache. */
TEST(a_prefix_stands_before_cached_places) {
    enum { PLACES = 7 };
    const int32_t text[PLACES] = {5, 17, 40, 3, 88, 21, 60};
    const weft_generate_options options = {.tokens = 1, .top_p = 1.0, .cache = true};
    const char *base = adapters[PREFIX].base, *const *keys = adapters[PREFIX].keys;
    weft_run *runs[2] = {NULL, NULL};
    weft_generator *whole = golden_generator(&runs[0], base, keys, 2, PLACES, &options);
    weft_generator *slow = golden_generator(&runs[1], base, keys, 2, PLACES, &options);
    const int64_t vocabulary = weft_generator_plan(whole)->declared->info.vocab_size;
    const float *at_once = NULL, *stepwise = NULL;
    double largest = 0.0;
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(weft_generator_logits(whole, &at_once, text, 0, PLACES, &err), err);
    for (int64_t i = 0; i < PLACES; i++)
        ck_assert_ok(weft_generator_logits(slow, &stepwise, text, i, i + 1, &err), err);
    for (int64_t v = 0; v < vocabulary; v++) {
        ck_assert_double_eq_tol((double)at_once[v], (double)stepwise[v], 2e-5);
        largest = fmax(largest, fabs((double)at_once[v]));
    }
    ck_assert_double_gt(largest, 0.1);
    weft_generator_destroy(whole);
    weft_generator_destroy(slow);
    weft_run_close(runs[0]);
    weft_run_close(runs[1]);
}

int main(void) {
    (void)snprintf(outside, sizeof outside, "adapter.plugin=%s/tests/outside/weft-adapter-vera.so",
                   getenv("WEFT_BUILD"));
    return run_tests(test_case("against_peft", 300, scratch_make, scratch_remove));
}
