/* tests/common/train_rig.c: see train_rig.h. */
#include "train_rig.h"

#include "golden.h"
#include "run/engine.h"

#include "suite.h"
#include <stdlib.h>
#include <unistd.h>
#include <weft/random.h>

/* ---- sequences ---- */

void row_data_make(row_data *out, int32_t rows, int32_t length) {
    const size_t n = (size_t)rows * (size_t)length;
    const row_data made = {.rows = rows,
                           .length = length,
                           .ids = calloc(n, 4),
                           .targets = calloc(n, 4),
                           .starts = calloc(n, 4),
                           .positions = calloc(n, 4),
                           .weights = calloc(n, 4),
                           .used = calloc((size_t)rows, 4)};
    *out = made;
    for (size_t i = 0; i < n; i++) out->starts[i] = (int32_t)(i % (size_t)length);
}

void row_data_free(row_data *data) {
    free(data->ids);
    free(data->targets);
    free(data->starts);
    free(data->positions);
    free(data->weights);
    free(data->used);
}

void row_data_add(row_data *data, int32_t row, const int32_t *ids, const float *target_weights, int32_t n) {
    const int32_t start = data->used[row];
    ck_assert_int_le(start + n - 1, data->length);
    for (int32_t i = 0; i + 1 < n; i++) {
        const int64_t at = (int64_t)row * data->length + start + i;
        data->ids[at] = ids[i];
        data->targets[at] = ids[i + 1];
        data->weights[at] = target_weights != NULL ? target_weights[i] : 1.0f;
        data->starts[at] = start;
        data->positions[at] = i;
    }
    data->used[row] += n - 1;
}

static weft_status rows_shape(const weft_data *data, weft_micro_batch *out, const weft_micro_batch_request *request,
                              weft_error *err) {
    row_data *self = (row_data *)(uintptr_t)data; /* counting does not change the data */
    (void)err;
    self->shapes++;
    out->rows = request->rows;
    out->length = self->length;
    out->n_targets = 0;
    for (int32_t r = 0; r < request->rows; r++) {
        const int64_t row = (int64_t)((request->first_row + (uint64_t)r) % (uint64_t)self->rows);
        for (int32_t t = 0; t < self->length; t++) out->n_targets += self->weights[row * self->length + t] != 0.0f;
    }
    return WEFT_OK;
}

static weft_status rows_micro_batch(const weft_data *data, weft_micro_batch *out,
                                    const weft_micro_batch_request *request, weft_error *err) {
    row_data *self = (row_data *)(uintptr_t)data;
    const size_t n = (size_t)self->length;
    (void)rows_shape(data, out, request, err);
    self->shapes--;
    self->micro_batches++;
    for (int32_t r = 0; r < request->rows; r++) {
        const size_t from = (size_t)((request->first_row + (uint64_t)r) % (uint64_t)self->rows) * n, to = (size_t)r * n;
        memcpy(out->ids + to, self->ids + from, n * 4);
        memcpy(out->targets + to, self->targets + from, n * 4);
        memcpy(out->weights + to, self->weights + from, n * 4);
        memcpy(out->starts + to, self->starts + from, n * 4);
        memcpy(out->positions + to, self->positions + from, n * 4);
    }
    return WEFT_OK;
}

const weft_data_plugin row_data_plugin = {.struct_size = (uint32_t)sizeof(weft_data_plugin),
                                          .shape = rows_shape,
                                          .micro_batch = rows_micro_batch};

void row_data_golden(row_data *out, const char *name) {
    golden_batch batch;
    weft_micro_batch micro_batch = {.struct_size = (uint32_t)sizeof micro_batch};
    weft_micro_batch_request request = {.struct_size = (uint32_t)sizeof request};
    golden_batch_open(&batch, name);
    row_data_make(out, batch.rows, batch.length);
    request.rows = batch.rows;
    micro_batch.ids = out->ids;
    micro_batch.targets = out->targets;
    micro_batch.weights = out->weights;
    micro_batch.starts = out->starts;
    micro_batch.positions = out->positions;
    ck_assert_int_eq(golden_data_plugin.micro_batch((weft_data *)(void *)&batch, &micro_batch, &request, NULL),
                     WEFT_OK);
    for (int32_t r = 0; r < out->rows; r++) out->used[r] = out->length;
    golden_batch_close(&batch);
}

void row_data_random(row_data *out, int32_t rows, int32_t length, int32_t vocabulary, uint64_t seed) {
    int32_t *ids = malloc(((size_t)length + 2) * sizeof *ids);
    row_data_make(out, rows, length);
    for (int32_t r = 0; r < rows; r++) {
        const int32_t first = length / 3;
        for (int32_t i = 0; i < length + 2; i++)
            ids[i] = (int32_t)(weft_random(seed, 99, (uint64_t)r, (uint64_t)i).v[0] % (uint32_t)vocabulary);
        row_data_add(out, r, ids, NULL, first + 1);
        row_data_add(out, r, ids + first + 1, NULL, length - first + 1);
    }
    free(ids);
}

static weft_status ragged_shape(const weft_data *data, weft_micro_batch *out, const weft_micro_batch_request *request,
                                weft_error *err) {
    const ragged_data *self = (const ragged_data *)(const void *)data;
    (void)err;
    out->rows = request->rows;
    out->length = request->first_row % 3 == 0 ? self->shorter : self->longer;
    out->n_targets = out->rows * (out->length - (int64_t)(request->first_row % 5));
    return WEFT_OK;
}

static weft_status ragged_micro_batch(const weft_data *data, weft_micro_batch *out,
                                      const weft_micro_batch_request *request, weft_error *err) {
    const uint32_t vocabulary = (uint32_t)((const ragged_data *)(const void *)data)->vocabulary;
    (void)ragged_shape(data, out, request, err);
    for (int32_t i = 0; i < out->rows * out->length; i++) {
        const int32_t place = i % out->length;
        const weft_random4 bits = weft_random(7, (uint32_t)request->split, request->first_row, (uint64_t)i);
        out->ids[i] = (int32_t)(bits.v[0] % vocabulary);
        out->targets[i] = (int32_t)(bits.v[1] % vocabulary);
        out->weights[i] = place < (int32_t)(request->first_row % 5) ? 0.0f : 1.0f;
        out->starts[i] = 0;
        out->positions[i] = place;
    }
    return WEFT_OK;
}

const weft_data_plugin ragged_data_plugin = {.struct_size = (uint32_t)sizeof(weft_data_plugin),
                                             .shape = ragged_shape,
                                             .micro_batch = ragged_micro_batch};

/* ---- models ---- */

void fresh_model_make(fresh_model *out, const fresh_shape *shape) {
    char file[96];
    FILE *to = NULL;
    (void)snprintf(out->path, sizeof out->path, "/tmp/weft-fresh-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(out->path));
    (void)snprintf(file, sizeof file, "%s/config.json", out->path);
    to = fopen(file, "w");
    ck_assert_ptr_nonnull(to);
    fprintf(to, "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": \"silu\",\n");
    fprintf(to, " \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d,\n", shape->hidden,
            shape->mlp, shape->layers);
    fprintf(to, " \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"vocab_size\": %d,\n", shape->heads,
            shape->kv_heads, shape->vocabulary);
    fprintf(to, " \"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0,\n",
            shape->context);
    fprintf(to, " \"initializer_range\": 0.05, \"tie_word_embeddings\": %s, \"torch_dtype\": \"float32\"}\n",
            shape->tied ? "true" : "false");
    ck_assert_int_eq(fclose(to), 0);
}

void fresh_model_remove(const fresh_model *model) {
    char file[96];
    (void)snprintf(file, sizeof file, "%s/config.json", model->path);
    (void)unlink(file);
    (void)rmdir(model->path);
}

/* ---- the engine ---- */

weft_plan_spec train_rig_spec(const row_data *data, int32_t micro_batches, bool evaluates) {
    weft_plan_spec spec = {
        .training = true, .micro_batches = micro_batches, .rows = data->rows / micro_batches, .n_lengths = 1};
    spec.lengths[0] = data->length;
    spec.evaluate_rows = evaluates ? spec.rows : 0;
    return spec;
}

void train_rig_open(train_rig *out, const char *directory, row_data *data, const char *const *overrides, size_t n) {
    train_rig_open_at(out, NULL, directory, data, overrides, n);
}

void train_rig_open_at(train_rig *out, const weft_rank_span *rank_span, const char *directory, row_data *data,
                       const char *const *overrides, size_t n) {
    char path[4096], model[4200];
    const char *all[32] = {model, "model.plugin=llama"};
    const train_rig empty = {.data_plugin = &row_data_plugin, .data = (weft_data *)(void *)data};
    const uint32_t needs = WEFT_NEEDS_ALL & ~WEFT_NEEDS(WEFT_PART_DATA) & ~WEFT_NEEDS(WEFT_PART_TOKENIZER);
    weft_error err = WEFT_ERROR_INIT;
    if (directory[0] == '/') (void)snprintf(path, sizeof path, "%s", directory);
    else golden_path(path, sizeof path, directory);
    (void)snprintf(model, sizeof model, "model.path=%s", path);
    ck_assert_uint_le(n + 2, 32);
    for (size_t i = 0; i < n; i++) all[i + 2] = overrides[i];
    *out = empty;
    ck_assert_ok(weft_run_open(&out->run, NULL, all, n + 2, needs, &err), err);
    ck_assert_ok(weft_engine_open(&out->engine, out->run, rank_span, &err), err);
}

void train_rig_start(train_rig *rig, const weft_plan_spec *spec) {
    weft_error err = WEFT_ERROR_INIT;
    ck_assert_ok(weft_engine_prepare(rig->engine, spec, &err), err);
    ck_assert_ok(weft_engine_allocate(rig->engine, &err), err);
    ck_assert_ok(weft_engine_load(rig->engine, &err), err);
    ck_assert_ok(weft_stepper_create(&rig->stepper, rig->engine, rig->data_plugin, rig->data, &err), err);
}

void train_rig_begin(train_rig *out, const char *directory, row_data *data, int32_t micro_batches, bool evaluates,
                     const char *const *overrides, size_t n) {
    const weft_plan_spec spec = train_rig_spec(data, micro_batches, evaluates);
    train_rig_open(out, directory, data, overrides, n);
    train_rig_start(out, &spec);
}

void train_rig_golden(train_rig *out, const char *name, int32_t micro_batches, bool evaluates,
                      const char *const *overrides, size_t n) {
    row_data rows;
    weft_plan_spec spec;
    row_data_golden(&rows, name);
    spec = train_rig_spec(&rows, micro_batches, evaluates);
    train_rig_open(out, name, &out->rows, overrides, n);
    out->rows = rows;
    train_rig_start(out, &spec);
}

void train_rig_close(train_rig *rig) {
    row_data_free(&rig->rows);
    weft_stepper_destroy(rig->stepper);
    weft_engine_close(rig->engine);
    weft_run_close(rig->run);
}

weft_step_result train_rig_step(train_rig *rig, uint64_t step) {
    weft_error err = WEFT_ERROR_INIT;
    weft_step_result result = {0};
    ck_assert_ok(weft_stepper_train(rig->stepper, &result, step, 1e-3, 0.5, &err), err);
    return result;
}

void train_rig_steps(train_rig *rig, uint64_t steps) {
    for (uint64_t s = 1; s <= steps; s++) (void)train_rig_step(rig, s);
}

double train_rig_evaluate(train_rig *rig) {
    weft_error err = WEFT_ERROR_INIT;
    weft_step_result result = {0};
    ck_assert_ok(weft_stepper_evaluate(rig->stepper, &result, WEFT_SPLIT_VALIDATION, 0, &err), err);
    return result.loss_sum;
}

float *train_rig_parameters(const train_rig *rig) {
    return read_floats(rig->engine, rig->engine->parameters.ref, rig->engine->plan.layout->numel);
}

bool same_floats(const float *a, const float *b, int64_t n) {
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}
