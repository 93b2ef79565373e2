/* The config.json of well-known models (tests/golden/published.json): read without changes, with the parameters, heads,
 * windows and angles of transformers, or rejected with the reason. No weights are needed for the declaration. */
#include "llama.h"

#include "base/text.h"
#include "decoder.h"

enum { PLACES = 2048 };

static const json_t *number_of(const json_t *one, const char *key) {
    const json_t *value = json_object_get(one, key);
    ck_assert_msg(json_is_number(value), "%s", key);
    return value;
}

/* {name}: {config}, for messages. */
static const char *name_of(const json_t *one) {
    return json_string_value(json_object_get(one, "name"));
}

static void hold_layers(const json_t *one, const decoder_config *c) {
    const json_t *windows = json_object_get(one, "windows"), *turned = json_object_get(one, "turned");
    ck_assert_int_eq(c->layers, (int64_t)json_array_size(windows));
    for (int64_t i = 0; i < c->layers; i++) {
        ck_assert_msg(c->layer[i].window == json_integer_value(json_array_get(windows, (size_t)i)),
                      "%s: layer %lld has a "
                      "window of %lld",
                      name_of(one), (long long)i, (long long)c->layer[i].window);
        ck_assert_int_eq(c->layer[i].has_rope, json_integer_value(json_array_get(turned, (size_t)i)));
    }
}

/* rows: per position three cosines and three sines, of the first, the middle and the last pair. */
static void hold_angles(const json_t *one, const decoder_rope *rope, const json_t *rows, const json_t *places) {
    weft_error err = WEFT_ERROR_INIT;
    const int64_t half = rope->dim / 2, pairs[3] = {0, half / 2, half - 1};
    float *table = calloc((size_t)(PLACES * rope->dim), sizeof *table);
    ck_assert_ok(decoder_rope_fill(rope, PLACES, table, &err), err);
    for (size_t p = 0; p < json_array_size(places); p++)
        for (size_t i = 0; i < 6; i++) {
            const float *row = table + json_integer_value(json_array_get(places, p)) * rope->dim;
            const double found = (double)row[(i < 3 ? 0 : half) + pairs[i % 3]];
            const double said = json_number_value(json_array_get(json_array_get(rows, p), i));
            ck_assert_msg(fabs(found - said) < 2e-6, "%s: %g, not %g", name_of(one), found, said);
        }
    free(table);
}

static void hold_numbers(const json_t *one, const char *type, const json_t *places) {
    weft_error err = WEFT_ERROR_INIT;
    char *text = json_dumps(json_object_get(one, "config"), 0);
    const weft_model_source source = {.struct_size = (uint32_t)sizeof source,
                                      .config_path = "config.json",
                                      .config_text = text,
                                      .config_bytes = strlen(text)};
    const json_t *angles = json_object_get(one, "angles");
    decoder_config c;
    ck_assert_ok(decoder_config_read(&c, family_find(type), &source, "", &err), err);
    ck_assert_int_eq(c.head_dim, json_integer_value(number_of(one, "head_dim")));
    ck_assert_int_eq(c.rope.dim, json_integer_value(number_of(one, "turned_dim")));
    ck_assert_double_eq_tol(c.scale, json_number_value(number_of(one, "scale")), 1e-9);
    ck_assert_double_eq_tol(c.eps, json_number_value(number_of(one, "eps")), 1e-12);
    hold_layers(one, &c);
    hold_angles(one, &c.rope, json_array_get(angles, 0), places);
    if (json_array_size(angles) == 2) hold_angles(one, &c.local, json_array_get(angles, 1), places);
    decoder_config_clear(&c);
    free(text);
}

static void hold_served(const json_t *one, const json_t *places) {
    const json_t *config = json_object_get(one, "config");
    const char *type = json_string_value(json_object_get(config, "model_type"));
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    const weft_status status = declare_json(&d, type, config, &err);
    ck_assert_msg(status == WEFT_OK, "%s: %s", name_of(one), err.text);
    ck_assert_msg(weft_declared_numel(d, false) == json_integer_value(number_of(one, "parameters")),
                  "%s has %lld parameters", name_of(one), (long long)weft_declared_numel(d, false));
    weft_declared_destroy(d);
    hold_numbers(one, type, places);
}

static void hold_refused(const json_t *one) {
    const json_t *config = json_object_get(one, "config");
    const char *type = json_string_value(json_object_get(config, "model_type")),
               *word = json_string_value(json_object_get(one, "refused"));
    weft_error err = WEFT_ERROR_INIT;
    weft_declared *d = NULL;
    const bool served = family_find(type) != NULL;
    ck_assert_msg(declare_json(&d, served ? type : "llama", config, &err) == WEFT_E_USER, "%s is taken", name_of(one));
    ck_assert_says(err, word);
}

TEST(published_models_are_read_as_they_come) {
    json_t *all = json_load_file(llama_golden("published.json"), 0, NULL);
    const json_t *models = json_object_get(all, "models");
    size_t refused = 0;
    ck_assert_uint_ge(json_array_size(models), 50);
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *one = json_array_get(models, i);
        refused += json_object_get(one, "refused") != NULL;
        if (json_object_get(one, "refused") != NULL) hold_refused(one);
        else hold_served(one, json_object_get(all, "places"));
    }
    ck_assert_uint_ge(refused, 8);
    json_decref(all);
}

int main(void) {
    return run_tests(test_case("config.json", 0, scratch_make, scratch_remove));
}
