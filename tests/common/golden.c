/* tests/common/golden.c: see golden.h. */
#include "golden.h"
#include "device_choice.h"
#include "run/engine.h"
#include "layout_offset.h"

#include "suite.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

void golden_path(char *path, size_t size, const char *name) {
    const char *source = getenv("WEFT_SOURCE");
    ck_assert_msg(source != NULL, "WEFT_SOURCE must name the source tree");
    (void)snprintf(path, size, "%s/tests/golden/%s", source, name);
}

void golden_plugin(char *override, size_t size, const char *name) {
    char path[4096], file[64];
    json_t *config = NULL;
    (void)snprintf(file, sizeof file, "%s/config.json", name);
    golden_path(path, sizeof path, file);
    config = json_load_file(path, 0, NULL);
    ck_assert_msg(config != NULL, "%s cannot be read", path);
    (void)snprintf(override, size, "model.plugin=%s", json_string_value(json_object_get(config, "model_type")));
    json_decref(config);
}

static const weft_tensor *tensor(const golden_batch *batch, const char *name, int32_t dtype) {
    const weft_tensor *t = weft_safetensors_find(batch->file, name);
    ck_assert_msg(t != NULL, "the golden file has no tensor %s", name);
    ck_assert_int_eq(t->dtype, dtype);
    return t;
}

const float *golden_floats(const golden_batch *batch, const char *name) {
    return (const float *)(const void *)tensor(batch, name, WEFT_F32)->data;
}

const double *golden_doubles(const golden_batch *batch, const char *name) {
    return (const double *)(const void *)tensor(batch, name, WEFT_F64)->data;
}

const int32_t *golden_ints(const golden_batch *batch, const char *name) {
    return (const int32_t *)(const void *)tensor(batch, name, WEFT_I32)->data;
}

void golden_batch_open(golden_batch *out, const char *name) {
    char path[4096], at[64];
    weft_error err = WEFT_ERROR_INIT;
    const weft_tensor *ids = NULL;
    const int32_t *starts = NULL;
    (void)snprintf(at, sizeof at, "%s/expected.safetensors", name);
    golden_path(path, sizeof path, at);
    ck_assert_ok(weft_safetensors_open(&out->file, path, &err), err);
    ids = tensor(out, "ids", WEFT_I32);
    out->rows = (int32_t)ids->dims[0];
    out->length = (int32_t)ids->dims[1];
    out->positions = calloc((size_t)ids->numel, sizeof *out->positions);
    starts = golden_ints(out, "starts");
    for (int64_t i = 0; i < ids->numel; i++) out->positions[i] = (int32_t)(i % out->length) - starts[i];
    out->count = *(const int64_t *)(const void *)tensor(out, "count", WEFT_I64)->data;
}

void golden_batch_close(golden_batch *batch) {
    weft_safetensors_close(batch->file);
    free(batch->positions);
}

static weft_status golden_shape(const weft_data *data, weft_micro_batch *out, const weft_micro_batch_request *request,
                                weft_error *err) {
    const golden_batch *batch = (const golden_batch *)(const void *)data;
    const float *weights = golden_floats(batch, "weights");
    (void)err;
    out->rows = request->rows;
    out->length = batch->length;
    out->n_targets = 0;
    for (int32_t r = 0; r < request->rows; r++) {
        const int64_t row = (int64_t)((request->first_row + (uint64_t)r) % (uint64_t)batch->rows);
        for (int32_t t = 0; t < batch->length; t++) out->n_targets += weights[row * batch->length + t] != 0.0f;
    }
    return WEFT_OK;
}

static weft_status golden_micro_batch(const weft_data *data, weft_micro_batch *out,
                                      const weft_micro_batch_request *request, weft_error *err) {
    const golden_batch *batch = (const golden_batch *)(const void *)data;
    const size_t n = (size_t)batch->length;
    (void)golden_shape(data, out, request, err);
    for (int32_t r = 0; r < request->rows; r++) {
        const size_t from = (size_t)((request->first_row + (uint64_t)r) % (uint64_t)batch->rows) * n,
                     to = (size_t)r * n;
        memcpy(out->ids + to, golden_ints(batch, "ids") + from, n * 4);
        memcpy(out->targets + to, golden_ints(batch, "targets") + from, n * 4);
        memcpy(out->weights + to, golden_floats(batch, "weights") + from, n * 4);
        memcpy(out->starts + to, golden_ints(batch, "starts") + from, n * 4);
        memcpy(out->positions + to, batch->positions + from, n * 4);
    }
    return WEFT_OK;
}

const weft_data_plugin golden_data_plugin = {.struct_size = (uint32_t)sizeof(weft_data_plugin),
                                             .shape = golden_shape,
                                             .micro_batch = golden_micro_batch};

void golden_engine_open(golden_engine *out, golden_batch *batch, const char *name, int32_t micro_batches,
                        const char *const *overrides, size_t n) {
    char path[4096], model[4200], plugin[64];
    const char *all[32] = {model, plugin};
    const size_t own = 2 + device_choice_overrides(all + 2);
    weft_error err = WEFT_ERROR_INIT;
    weft_plan_spec spec = {
        .training = true, .micro_batches = micro_batches, .rows = batch->rows / micro_batches, .n_lengths = 1};
    const uint32_t needs = WEFT_NEEDS_ALL & ~WEFT_NEEDS(WEFT_PART_DATA) & ~WEFT_NEEDS(WEFT_PART_TOKENIZER);
    golden_path(path, sizeof path, name);
    (void)snprintf(model, sizeof model, "model.path=%s", path);
    golden_plugin(plugin, sizeof plugin, name);
    ck_assert_uint_le(n + own, 32);
    for (size_t i = 0; i < n; i++) all[i + own] = overrides[i];
    spec.lengths[0] = batch->length;
    spec.evaluate_rows = spec.rows;
    memset(out, 0, sizeof *out);
    ck_assert_ok(weft_run_open(&out->run, NULL, all, n + own, needs, &err), err);
    ck_assert_ok(weft_engine_open(&out->engine, out->run, NULL, &err), err);
    ck_assert_ok(weft_engine_prepare(out->engine, &spec, &err), err);
    ck_assert_ok(weft_engine_allocate(out->engine, &err), err);
    ck_assert_ok(weft_engine_load(out->engine, &err), err);
    ck_assert_ok(weft_stepper_create(&out->stepper, out->engine, &golden_data_plugin, (weft_data *)(void *)batch, &err),
                 err);
}

void golden_engine_close(golden_engine *engine) {
    weft_stepper_destroy(engine->stepper);
    weft_engine_close(engine->engine);
    weft_run_close(engine->run);
}

double relative_error(const float *a, const float *b, int64_t n) {
    double difference = 0.0, norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0.0 ? sqrt(difference / norm) : sqrt(difference);
}

float *read_floats(const weft_engine *engine, weft_ref ref, int64_t n) {
    weft_error err = WEFT_ERROR_INIT;
    float *out = malloc((size_t)n * sizeof *out);
    ck_assert_ptr_nonnull(out);
    ck_assert_ok(engine->kernels->read(engine->device, NULL, out, ref, n * 4, &err), err);
    return out;
}

/* Where the gradient is zero except for rounding (key bias without rotary embedding), copies the expected values. */
static void pass_noise(float *found, const float *expected, const float *gradient, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (gradient[i] != 0.0f && fabsf(gradient[i]) < 1e-10f) found[i] = expected[i];
}

int32_t golden_compare(const golden_engine *g, const golden_batch *batch, const char *prefix, bool gradients,
                       bool noisy) {
    const weft_engine *engine = g->engine;
    int32_t compared = 0;
    for (int32_t i = 0; i < engine->plan.declared->n_parameters; i++) {
        const weft_parameter *p = &engine->plan.declared->parameters[i];
        const weft_ref gradient = weft_ref_at(engine->gradients.ref, layout_offset(engine->plan.layout, p));
        char name[256], of_gradient[256];
        float *found = NULL;
        double error = 0.0;
        if (!p->trainable) continue;
        (void)snprintf(name, sizeof name, "%s%s", prefix, p->name);
        (void)snprintf(of_gradient, sizeof of_gradient, "grad.%s", p->name);
        found = read_floats(engine, gradients ? gradient : engine->parameter_refs[i], p->numel);
        if (noisy) pass_noise(found, golden_floats(batch, name), golden_floats(batch, of_gradient), p->numel);
        error = relative_error(found, golden_floats(batch, name), p->numel);
        ck_assert_msg(error < 1e-4, "%s is off by %.3g", name, error);
        free(found);
        compared++;
    }
    return compared;
}

static int32_t count_tensors(const golden_batch *batch, const char *prefix) {
    int32_t n = 0;
    for (int32_t i = 0; i < batch->file->n_tensors; i++)
        n += strncmp(batch->file->tensors[i].name, prefix, strlen(prefix)) == 0;
    return n;
}

void golden_ten_steps(const golden_engine *g, const golden_batch *batch, bool noisy) {
    const double *losses = golden_doubles(batch, "adamw10.loss"), *norms = golden_doubles(batch, "adamw10.norm");
    for (int step = 0; step < 10; step++) {
        weft_error err = WEFT_ERROR_INIT;
        weft_step_result result = {0};
        ck_assert_ok(weft_stepper_train(g->stepper, &result, (uint64_t)step + 1, 1e-3, 0.5, &err), err);
        ck_assert_int_eq(result.n_targets, batch->count);
        ck_assert_double_lt(fabs(result.loss_sum / (double)result.n_targets / losses[step] - 1.0), 1e-5);
        ck_assert_double_lt(fabs(result.norm / norms[step] - 1.0), 1e-4);
        if (step == 0) ck_assert_int_eq(golden_compare(g, batch, "grad.", true, false), count_tensors(batch, "grad."));
    }
    (void)golden_compare(g, batch, "adamw10.", false, noisy);
}

weft_generator *golden_generator(weft_run **run, const char *name, const char *const *overrides, size_t n,
                                 int64_t n_prompt, const weft_generate_options *options) {
    const uint32_t needs = WEFT_NEEDS(WEFT_PART_MODEL) | WEFT_NEEDS(WEFT_PART_POLICY) | WEFT_NEEDS(WEFT_PART_STRATEGY) |
                           WEFT_NEEDS(WEFT_PART_DEVICE) | WEFT_NEEDS(WEFT_PART_ADAPTER);
    char path[4096], model[4200], plugin[64];
    const char *all[32] = {model, plugin};
    const size_t own = 2 + device_choice_overrides(all + 2);
    weft_generator *generator = NULL;
    weft_error err = WEFT_ERROR_INIT;
    golden_path(path, sizeof path, name);
    golden_plugin(plugin, sizeof plugin, name);
    (void)snprintf(model, sizeof model, "model.path=%s", path);
    ck_assert_uint_le(n + own, 32);
    for (size_t i = 0; i < n; i++) all[i + own] = overrides[i];
    ck_assert_ok(weft_run_open(run, NULL, all, n + own, needs, &err), err);
    ck_assert_ok(weft_generator_create(&generator, *run, n_prompt, options, &err), err);
    return generator;
}

double golden_worst_logit(const golden_batch *batch, weft_generator *generator) {
    const int64_t vocabulary = weft_generator_plan(generator)->declared->info.vocab_size;
    const float *expected = golden_floats(batch, "logits"), *weights = golden_floats(batch, "weights");
    double worst = 0.0;
    for (int32_t i = 0; i < batch->rows * batch->length; i++) {
        const int32_t *ids = golden_ints(batch, "ids") + i - batch->positions[i];
        const float *found = NULL;
        weft_error err = WEFT_ERROR_INIT;
        if (weights[i] == 0.0f && batch->positions[i] == 0) continue; /* first of padding, or of a masked prompt */
        ck_assert_ok(weft_generator_logits(generator, &found, ids, 0, batch->positions[i] + 1, &err), err);
        for (int64_t v = 0; v < vocabulary; v++)
            worst = fmax(worst, fabs((double)found[v] - (double)expected[i * vocabulary + v]));
    }
    return worst;
}

void golden_compare_mean_logits(const golden_engine *g, const golden_batch *batch, const double *mean, int64_t width) {
    const weft_declared *declared = g->engine->plan.declared;
    const int64_t vocabulary = declared->info.vocab_size, places = (int64_t)batch->rows * batch->length;
    const float *logits = golden_floats(batch, "logits"), *weights = golden_floats(batch, "weights");
    float *head = read_floats(g->engine, g->engine->parameter_refs[weft_declared_find(declared, "lm_head.weight")],
                              vocabulary * width);
    for (int64_t v = 0; v < vocabulary; v++) {
        double found = 0.0, expected = 0.0;
        for (int64_t i = 0; i < width; i++) found += (double)head[v * width + i] * mean[i];
        for (int64_t i = 0; i < places; i++)
            if (weights[i] != 0.0f) expected += (double)logits[i * vocabulary + v] / (double)batch->count;
        ck_assert_double_eq_tol(found, expected, 1e-4);
    }
    free(head);
}

double golden_gradient_error(const golden_engine *g, const golden_batch *batch, const weft_parameter *p, double scale) {
    const int64_t at = layout_offset(g->engine->plan.layout, p);
    float *found = read_floats(g->engine, weft_ref_at(g->engine->gradients.ref, at), p->numel);
    char name[256];
    double error = 0.0;
    (void)snprintf(name, sizeof name, "grad.%s", p->name);
    for (int64_t i = 0; i < p->numel; i++) found[i] = (float)((double)found[i] / scale);
    error = relative_error(found, golden_floats(batch, name), p->numel);
    free(found);
    return error;
}
