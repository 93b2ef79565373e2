/* Changes or removes each key of a family's config.json (tests/golden/family_keys.json): the logits equal those of
 * transformers, or the run fails with the key's name. */
#include "llama.h"

#include "base/safetensors.h"
#include "run/generate.h"

#include <jansson.h>
#include <math.h>

static const char *const families[] = {"llama", "mistral", "qwen2",  "qwen3",       "smollm3",
                                       "olmo2", "gemma",   "gemma2", "gemma3_text", "phi3"};

/* ---- a model with weights derived from names ---- */

static double unit(const char *name, uint32_t index) {
    uint32_t x = 2166136261u;
    for (; *name != '\0'; name++) x = (x ^ (uint8_t)*name) * 16777619u;
    x += index * 2654435761u;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return (double)(x ^ x >> 16) / 2147483648.0 - 1.0;
}

static void write_weights(const weft_declared *d) {
    weft_error err = WEFT_ERROR_INIT;
    weft_tensor_spec *specs = calloc((size_t)d->n_parameters, sizeof *specs);
    weft_tensor_writer *writer = NULL;
    (void)unlink(scratch_path("model.safetensors"));
    for (int32_t i = 0; i < d->n_parameters; i++) {
        const weft_parameter *p = &d->parameters[i];
        const weft_tensor_spec one = {p->name, WEFT_F32, p->rank, {p->dims[0], p->dims[1]}};
        specs[i] = one;
    }
    ck_assert_ok(
        weft_tensor_writer_open(&writer, scratch_path("model.safetensors"), specs, d->n_parameters, true, &err), err);
    for (int32_t i = 0; i < d->n_parameters; i++) {
        const weft_parameter *p = &d->parameters[i];
        const bool norm = strstr(p->name, "norm") != NULL;
        float *numbers = calloc((size_t)p->numel, sizeof *numbers);
        for (int64_t k = 0; k < p->numel; k++) {
            const double u = unit(p->name, (uint32_t)k);
            numbers[k] = (float)(norm ? 1.0 + 0.3 * u : 0.4 * u);
        }
        ck_assert_ok(weft_tensor_writer_write(writer, i, 0, numbers, p->numel * 4, &err), err);
        free(numbers);
    }
    ck_assert_ok(weft_tensor_writer_finish(writer, &err), err);
    free(specs);
}

/* Writes config.json and, if it is valid, the required weights. */
static weft_status write_model(const char *family, json_t *config, weft_error *err) {
    weft_declared *d = NULL;
    const weft_status status = declare_json(&d, family, config, err);
    if (status == WEFT_OK) write_weights(d);
    weft_declared_destroy(d);
    return status;
}

/* Returns the distance of the last position's logits from the expected ones. */
static double distance(const char *family, const json_t *text, const json_t *expected) {
    char model[600], plugin[64];
    const char *overrides[] = {model, plugin};
    const weft_generate_options options = {.tokens = 1, .top_p = 1.0, .cache = true};
    const uint32_t needs = WEFT_NEEDS(WEFT_PART_MODEL) | WEFT_NEEDS(WEFT_PART_POLICY) | WEFT_NEEDS(WEFT_PART_STRATEGY) |
                           WEFT_NEEDS(WEFT_PART_DEVICE);
    int32_t ids[64];
    const int64_t n = (int64_t)json_array_size(text);
    double worst = 0.0;
    const float *logits = NULL;
    weft_run *run = NULL;
    weft_generator *generator = NULL;
    weft_error err = WEFT_ERROR_INIT;
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(text, (size_t)i));
    (void)snprintf(model, sizeof model, "model.path=%s", scratch_path(""));
    (void)snprintf(plugin, sizeof plugin, "model.plugin=%s", family);
    ck_assert_ok(weft_run_open(&run, NULL, overrides, 2, needs, &err), err);
    ck_assert_ok(weft_generator_create(&generator, run, n, &options, &err), err);
    ck_assert_ok(weft_generator_logits(generator, &logits, ids, 0, n, &err), err);
    for (size_t i = 0; i < json_array_size(expected); i++)
        worst = fmax(worst, fabs((double)logits[i] - json_number_value(json_array_get(expected, i))));
    weft_generator_destroy(generator);
    weft_run_close(run);
    return worst;
}

/* ---- cases ---- */

static json_t *changed(const json_t *base, json_t *change) {
    json_t *config = json_deep_copy(base), *value = NULL;
    const char *key = NULL;
    json_object_foreach(change, key, value) {
        const char *word = json_string_value(value);
        if (word != NULL && strcmp(word, "absent") == 0) json_object_del(config, key);
        else json_object_set(config, key, value);
    }
    return config;
}

static void check_case(const char *family, const json_t *base, const json_t *text, const json_t *one) {
    const char *key = json_string_value(json_object_get(one, "key"));
    json_t *change = json_object_get(one, "change"), *config = changed(base, change);
    char *shown = json_dumps(change, JSON_ENCODE_ANY);
    weft_error err = WEFT_ERROR_INIT;
    const weft_status status = write_model(family, config, &err);
    if (json_is_true(json_object_get(one, "refused"))) {
        ck_assert_msg(status == WEFT_E_USER, "%s: %s is accepted", family, shown);
        ck_assert_msg(strstr(err.text, key) != NULL, "%s: \"%s\" does not name %s", family, err.text, key);
    } else {
        const json_t *logits = json_object_get(one, "logits");
        double off = 0.0;
        ck_assert_msg(status == WEFT_OK, "%s: %s: %s", family, shown, err.text);
        ck_assert_uint_ge(json_array_size(logits), 15);
        off = distance(family, text, logits);
        ck_assert_msg(off < 1e-4, "%s: %s: logits are off by %.3g", family, shown, off);
    }
    free(shown);
    json_decref(config);
}

TESTS(each_key_is_computed_or_refused_by_name, LENGTH(families)) {
    json_t *all = json_load_file(llama_golden("family_keys.json"), 0, NULL);
    const json_t *cases = json_object_get(json_object_get(all, "families"), families[_i]);
    const json_t *base = json_object_get(json_array_get(cases, 0), "config");
    const size_t n = json_array_size(cases);
    ck_assert_uint_ge(n, 50);
    for (size_t i = 0; i < n; i++)
        check_case(families[_i], base, json_object_get(all, "text"), json_array_get(cases, i));
    json_decref(all);
}

/* Rotary embeddings of every kind at late positions, where differently rounded angles are visible. */
TESTS(late_places_turn_as_in_transformers, 7) {
    json_t *all = json_load_file(llama_golden("family_keys.json"), 0, NULL);
    const json_t *one = json_array_get(json_object_get(all, "angles"), (size_t)_i),
                 *places = json_object_get(all, "places");
    json_t *config = json_pack("{s:s s:i s:i s:i s:i s:i s:i s:O}", "model_type", "llama", "vocab_size", 11,
                               "hidden_size", 32, "intermediate_size", 8, "num_hidden_layers", 1, "num_attention_heads",
                               2, "max_position_embeddings", 8192, "rope_parameters", json_object_get(one, "rope"));
    float *table = calloc(8192 * 16, sizeof *table);
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    ck_assert_ok(declare_json(&d, "llama", config, &err), err);
    ck_assert_int_eq(d->tables[0]->width, 16);
    ck_assert_ok(d->tables[0]->fill(d->model, "rope", 8192, table, &err), err);
    ck_assert_uint_eq(json_array_size(places), 6);
    for (size_t p = 0; p < json_array_size(places); p++)
        for (size_t half = 0; half < 2; half++)
            for (size_t i = 0; i < 8; i++) {
                const json_t *row = json_array_get(json_array_get(json_object_get(one, "rows"), p), half);
                const float found = table[(size_t)json_integer_value(json_array_get(places, p)) * 16 + half * 8 + i];
                ck_assert_double_eq_tol((double)found, json_number_value(json_array_get(row, i)), 2e-6);
            }
    weft_declared_destroy(d);
    json_decref(config);
    json_decref(all);
    free(table);
}

int main(void) {
    return run_tests(test_case("config.json", 300, scratch_make, scratch_remove));
}
