/* host/tools/check/model_rules.c: rules for models: declaration, recorded operators, forward and backward results. */
#include "tools/check/rule.h"

#include "base/file.h"
#include "base/text.h"
#include "tools/check/newer_abi.h"
#include "tools/check/other_key.h"
#include "model/declare.h"
#include "tools/check/reference_run.h"
#include "plugin/enter.h"
#include "plugin/services.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_BYTES = 1 << 20, TABLE_ROWS = 8 };

static weft_status find_config(char path[WEFT_PATH_BYTES], const weft_plugin_under_test *tested, weft_error *err) {
    return weft_path_join(path, tested->options->directory, "config.json", err);
}

static weft_status declare(weft_declared **out, const weft_plugin_under_test *tested, const char *path, uint8_t poison,
                           weft_error *err) {
    *out = NULL;
    return weft_declared_create(out, weft_plugin_under_test_host(poison), weft_plugin_under_test_table(tested, model),
                                tested->config, path, NULL, err);
}

/* Converts errors for a model of another type to "unsupported". */
static weft_status not_tried(weft_status status) {
    return status == WEFT_E_USER || status == WEFT_E_DATA ? WEFT_E_UNSUPPORTED : status;
}

static bool same_parameter(const weft_parameter *a, const weft_parameter *b) {
    return strcmp(a->name, b->name) == 0 && a->rank == b->rank && a->role == b->role && a->dims[0] == b->dims[0] &&
           a->dims[1] == b->dims[1] && a->n_aliases == b->n_aliases && a->module == b->module;
}

static bool same_model(const weft_declared *a, const weft_declared *b) {
    if (a->n_parameters != b->n_parameters || a->n_modules != b->n_modules || a->n_segments != b->n_segments)
        return false;
    for (int32_t i = 0; i < a->n_parameters; i++)
        if (!same_parameter(&a->parameters[i], &b->parameters[i])) return false;
    for (int32_t i = 0; i < a->n_modules; i++)
        if (strcmp(a->modules[i]->path, b->modules[i]->path) != 0) return false;
    for (int32_t i = 0; i < a->n_segments; i++)
        if (strcmp(a->segments[i].name, b->segments[i].name) != 0) return false;
    return true;
}

/* Two instances of one model; the second uses another table or its own memory. */
typedef struct pair {
    weft_declared *one, *two;
    weft_recorded ones, twos;
} pair;

static void pair_free(pair *p) {
    weft_recorded_free(&p->ones);
    weft_recorded_free(&p->twos);
    weft_declared_destroy(p->one);
    weft_declared_destroy(p->two);
}

static weft_status first_of(pair *p, const weft_plugin_under_test *tested, char path[WEFT_PATH_BYTES],
                            weft_error *err) {
    weft_status status = find_config(path, tested, err);
    memset(p, 0, sizeof *p);
    return status == WEFT_OK ? not_tried(declare(&p->one, tested, path, WEFT_POISON_ONE, err)) : status;
}

/* ---- independence from instances with other keys ---- */

static weft_status open_declared(void *made, const weft_plugin_under_test *tested, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    const weft_status status = find_config(path, tested, err);
    return status == WEFT_OK ? declare(made, tested, path, WEFT_POISON_ONE, err) : status;
}

static void close_declared(void *made) {
    weft_declared **declared = made;
    weft_declared_destroy(*declared);
    *declared = NULL;
}

static void add_parameter(weft_answer *to, const weft_parameter *p) {
    weft_answer_add_text(to, p->name);
    for (int32_t i = 0; i < p->n_aliases; i++) weft_answer_add_text(to, p->aliases[i]);
    WEFT_ANSWER_ADD(to, p->module);
    WEFT_ANSWER_ADD(to, p->rank);
    WEFT_ANSWER_ADD(to, p->role);
    WEFT_ANSWER_ADD(to, p->dims);
    WEFT_ANSWER_ADD(to, p->dtype);
    WEFT_ANSWER_ADD(to, p->init_form);
    WEFT_ANSWER_ADD(to, p->init_std);
}

static weft_status add_table(weft_answer *to, const weft_declared *declared, const weft_table *table, weft_error *err) {
    float *rows = weft_alloc(TABLE_ROWS * table->width, sizeof *rows);
    const weft_call_record before = weft_plugin_enter(declared->plugin, "fill");
    const weft_status status =
        weft_plugin_leave(before, table->fill(declared->model, table->name, TABLE_ROWS, rows, err), err);
    weft_answer_add_text(to, table->name);
    weft_answer_add(to, rows, (size_t)(TABLE_ROWS * table->width) * sizeof *rows);
    free(rows);
    return status;
}

static weft_status query_declared(weft_answer *to, void *made, weft_error *err) {
    const weft_declared *declared = *(weft_declared **)made;
    weft_status status = WEFT_OK;
    WEFT_ANSWER_ADD(to, declared->info.max_context);
    WEFT_ANSWER_ADD(to, declared->info.vocab_size);
    WEFT_ANSWER_ADD(to, declared->carry_width);
    for (int32_t i = 0; i < declared->n_modules; i++) weft_answer_add_text(to, declared->modules[i]->path);
    for (int32_t i = 0; i < declared->n_parameters; i++) add_parameter(to, &declared->parameters[i]);
    for (int32_t i = 0; i < declared->n_segments; i++) weft_answer_add_text(to, declared->segments[i].name);
    for (int32_t i = 0; i < declared->n_tables && status == WEFT_OK; i++)
        status = add_table(to, declared, declared->tables[i], err);
    return status;
}

static weft_status query_recorded(weft_answer *to, void *made, weft_error *err) {
    weft_recorded recorded = {0};
    const weft_status status = weft_recorded_make(&recorded, *(weft_declared **)made, err);
    if (status == WEFT_OK) weft_recorded_add(to, &recorded);
    weft_recorded_free(&recorded);
    return status;
}

static const weft_answers declared_answers = {sizeof(weft_declared *), open_declared, close_declared, query_declared};
static const weft_answers recorded_answers = {sizeof(weft_declared *), open_declared, close_declared, query_recorded};

/* ---- the rules ---- */

static weft_status declares_alike(weft_plugin_under_test *tested, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    pair p = {0};
    weft_status status = weft_other_keys(tested, &declared_answers, err);
    if (status == WEFT_OK) status = first_of(&p, tested, path, err);
    if (status == WEFT_OK) status = declare(&p.two, tested, path, WEFT_POISON_TWO, err);
    if (status == WEFT_OK && !same_model(p.one, p.two))
        status =
            WEFT_BROKEN(err,
                        "a second instance declares different modules, weights or segments for the same config.json");
    pair_free(&p);
    return status;
}

/* Checks that instances do not count calls: the first records again after the second has recorded. */
static weft_status records_alike(weft_plugin_under_test *tested, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_recorded again = {0};
    pair p = {0};
    weft_status status = weft_other_keys(tested, &recorded_answers, err);
    if (status == WEFT_OK) status = first_of(&p, tested, path, err);
    if (status == WEFT_OK) status = declare(&p.two, tested, path, WEFT_POISON_TWO, err);
    if (status == WEFT_OK) status = weft_recorded_make(&p.ones, p.one, err);
    if (status == WEFT_OK) status = weft_recorded_make(&p.twos, p.two, err);
    if (status == WEFT_OK) status = weft_recorded_make(&again, p.one, err);
    if (status == WEFT_OK && !weft_recorded_same(&p.ones, &p.twos))
        status = WEFT_BROKEN(err, "a second instance records different operators or arguments");
    else if (status == WEFT_OK && !weft_recorded_same(&p.ones, &again))
        status = WEFT_BROKEN(err, "records different operators or arguments on a second call");
    weft_recorded_free(&again);
    pair_free(&p);
    return status;
}

static weft_status works_later(weft_plugin_under_test *tested, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    pair p;
    weft_status status = first_of(&p, tested, path, err);
    if (status == WEFT_OK) status = weft_recorded_make(&p.ones, p.one, err);
    if (status == WEFT_OK) {
        status = declare(&p.two, weft_newer_abi(tested), path, WEFT_POISON_ONE, err);
        status = weft_newer_abi_check(status, status == WEFT_OK && same_model(p.one, p.two),
                                      "modules, weights or segments", err);
        if (status == WEFT_OK) {
            status = weft_recorded_make(&p.twos, p.two, err);
            status = weft_newer_abi_check(status, status == WEFT_OK && weft_recorded_same(&p.ones, &p.twos),
                                          "operators", err);
        }
    }
    pair_free(&p);
    return status;
}

/* Records all segments between create and destroy, because `forward` may leak. */
static weft_status create_and_destroy(weft_plugin_under_test *tested, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    pair p;
    weft_status status = first_of(&p, tested, path, err);
    if (status == WEFT_OK) status = weft_recorded_make(&p.ones, p.one, err);
    pair_free(&p);
    return status;
}

WEFT_RULE_BY(releases, weft_plugin_under_test_releases, create_and_destroy)

/* ---- computed results ---- */

/* A model on this project's CPU device with one thread; the matmuls are too small for more threads. */
typedef struct bench {
    weft_plugin_under_test cpu;
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_declared *declared;
} bench;

static weft_status open_device(bench *self, weft_error *err) {
    const weft_key *threads;
    weft_status status = weft_plugin_under_test_open_own(&self->cpu, "device", "cpu", err);
    if (status != WEFT_OK) return status;
    threads = weft_plugin_under_test_key(&self->cpu, "threads", WEFT_KEY_I64);
    if (threads != NULL) *(int64_t *)weft_plugin_under_test_value(&self->cpu, threads) = 1;
    self->kernels = weft_plugin_under_test_table(&self->cpu, device);
    WEFT_PLUGIN_CALL(status, self->kernels, create, err, &self->device, weft_services(), self->cpu.config, 0);
    return status;
}

static weft_status open_bench(bench *self, const weft_plugin_under_test *tested, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_status status = find_config(path, tested, err);
    memset(self, 0, sizeof *self);
    if (status == WEFT_OK) status = open_device(self, err);
    return status == WEFT_OK ? not_tried(declare(&self->declared, tested, path, WEFT_POISON_ONE, err)) : status;
}

static void close_bench(bench *self) {
    weft_declared_destroy(self->declared);
    if (self->device != NULL) WEFT_PLUGIN_NOTIFY(self->kernels, destroy, self->device);
    weft_plugin_under_test_close(&self->cpu);
}

/* Draws smaller weights until the loss is finite, because a model may overflow with large weights. */
static weft_status play(weft_reference_run **out, const bench *self, bool is_small, weft_error *err) {
    const double sizes[] = {1, 0.25, 0.0625};
    weft_status status = WEFT_OK;
    *out = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        weft_reference_micro_batch micro_batch;
        weft_reference_run_destroy(*out);
        status = weft_reference_run_create(out, self->declared, self->kernels, self->device, sizes[i], is_small, err);
        if (status == WEFT_OK) weft_reference_run_draw(*out, 0, &micro_batch);
        if (status == WEFT_OK) status = weft_reference_run_forward(*out, &micro_batch, err);
        if (status == WEFT_OK) status = weft_reference_run_backward(*out, err);
        if (status != WEFT_OK || isfinite((*out)->loss_sum)) return status;
    }
    return WEFT_BROKEN(err, "its loss is no number, whichever weights it has: %g", (*out)->loss_sum);
}

/* Tests a model with two reference runs; `two` is NULL unless beside. The first run is small if is_small. */
typedef weft_status played_test(weft_reference_run *one, weft_reference_run *two, weft_error *err);

static weft_status with_runs(const weft_plugin_under_test *tested, bool is_small, bool beside, played_test *test,
                             weft_error *err) {
    weft_reference_run *one = NULL, *two = NULL;
    bench self;
    weft_status status = open_bench(&self, tested, err);
    if (status == WEFT_OK) status = play(&one, &self, is_small, err);
    if (status == WEFT_OK && beside) status = play(&two, &self, false, err);
    if (status == WEFT_E_PLUGIN && two != NULL && is_small)
        (void)weft_error_prefix(err, "in a micro-batch of %d x %d, after one of %d x %d: ", two->rows, two->length,
                                one->rows, one->length);
    if (status == WEFT_OK) status = test(one, two, err);
    weft_reference_run_destroy(two);
    weft_reference_run_destroy(one);
    close_bench(&self);
    return status;
}

static bool has_own; /* the tested model has operators of its own */

static weft_status check_gradients(weft_reference_run *played, weft_reference_run *none, weft_error *err) {
    (void)none;
    has_own = weft_reference_run_own_operator(played) != NULL;
    return weft_gradient_check(played, err);
}

static weft_status has_gradients(weft_plugin_under_test *tested, weft_error *err) {
    weft_plugin_under_test twice = *tested;
    weft_status status = with_runs(tested, false, false, check_gradients, err);
    if (status != WEFT_OK || !has_own) return status;
    twice.loaded = weft_accumulate_shim(tested->loaded);
    status = with_runs(&twice, false, false, check_gradients, err);
    if (status != WEFT_OK)
        (void)weft_error_prefix(err, "if another reader of its inputs has written a gradient before, to which backward "
                                     "adds because of `accumulate`: ");
    return status;
}

static weft_status check_causal_mask(weft_reference_run *played, weft_reference_run *none, weft_error *err) {
    (void)none;
    return weft_causal_mask_check(played, err);
}

static weft_status sees_its_past(weft_plugin_under_test *tested, weft_error *err) {
    return with_runs(tested, false, false, check_causal_mask, err);
}

static weft_status keeps_micro_batches_apart(weft_plugin_under_test *tested, weft_error *err) {
    return with_runs(tested, false, true, weft_causal_mask_check_history, err);
}

/* For the large one the same numbers are drawn, unless it takes smaller ones. */
static weft_status check_shapes(weft_reference_run *small, weft_reference_run *large, weft_error *err) {
    if (small->declared->n_parameters > 0 && small->values[0][0] != large->values[0][0])
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "its loss is no number in one of two shapes");
    return weft_causal_mask_check_shapes(small, large, err);
}

static weft_status computes_any_shape(weft_plugin_under_test *tested, weft_error *err) {
    return with_runs(tested, true, true, check_shapes, err);
}

/* ---- config.json ---- */

enum { MOST_VALUES = 3 };
#define WINDOW "5" /* a value of sliding_window that is also switched on */

/* Settings of transformers' models, with values of which two define different models. A model implements them or
 * rejects them. */
static const struct {
    const char *key, *values[MOST_VALUES];
    bool is_always; /* tried also if config.json does not have it */
} settings[] = {
    {"hidden_act", {"\"silu\"", "\"gelu\"", "\"relu\""}, true},
    {"hidden_activation", {"\"silu\"", "\"gelu\"", "\"relu\""}, false},
    {"activation_function", {"\"silu\"", "\"gelu\"", "\"relu\""}, false},
    {"sliding_window", {"null", "3", WINDOW}, true},
    {"rope_theta", {"1000.0", "50000.0"}, true},
    {"rope_scaling", {"null", "{\"rope_type\": \"linear\", \"factor\": 4.0}"}, true},
    {"tie_word_embeddings", {"false", "true"}, true},
    {"rms_norm_eps", {"1e-05", "0.01"}, false},
    {"layer_norm_epsilon", {"1e-05", "0.01"}, false},
    {"num_key_value_heads", {"1", "2", "4"}, false},
    {"attention_bias", {"false", "true"}, false},
    {"mlp_bias", {"false", "true"}, false},
};

/* Writes config.json with another value. The base of transformers 5 is in an object of rotary keys, and some families
 * switch windows on by another key. */
static weft_status write_config(json_t *root, const char *key, const char *value, weft_error *err) {
    json_t *changed = json_deep_copy(root), *inner = json_object_get(changed, "rope_parameters");
    const bool is_inner = strcmp(key, "rope_theta") == 0 && json_is_object(inner);
    weft_status status = WEFT_OK;
    (void)json_object_set_new(is_inner ? inner : changed, key, json_loads(value, JSON_DECODE_ANY, NULL));
    if (strcmp(key, "sliding_window") == 0 && strcmp(value, WINDOW) == 0) {
        (void)json_object_set_new(changed, "use_sliding_window", json_true());
        (void)json_object_set_new(changed, "max_window_layers", json_integer(0));
        (void)json_object_del(changed, "layer_types");
    }
    status = json_dump_file(changed, "config.json", JSON_INDENT(2)) == 0
                 ? WEFT_OK
                 : weft_error_set(err, WEFT_E_SYSTEM, "config.json cannot be written");
    json_decref(changed);
    return status;
}

/* Hashes the plugin's declaration and recorded operators for that config.json. *taken: false if it rejects the file. */
static void answer_config(bool *taken, weft_answer *out, const weft_plugin_under_test *tested) {
    weft_declared *made = NULL;
    weft_error said = WEFT_ERROR_INIT;
    weft_status status = declare(&made, tested, "config.json", WEFT_POISON_ONE, &said);
    weft_answer_begin(out);
    if (status == WEFT_OK) status = query_declared(out, &made, &said);
    if (status == WEFT_OK) status = query_recorded(out, &made, &said);
    *taken = status == WEFT_OK;
    weft_declared_destroy(made);
}

static weft_status try_setting(const weft_plugin_under_test *tested, json_t *root, size_t s, weft_error *err) {
    weft_answer first = {0}, other = {0};
    bool differs = false;
    weft_status status = WEFT_OK;
    for (size_t v = 0; v < MOST_VALUES && settings[s].values[v] != NULL && status == WEFT_OK && !differs; v++) {
        bool taken = false;
        weft_plugin_under_test_asks("config.json with %s = %s", settings[s].key, settings[s].values[v]);
        status = write_config(root, settings[s].key, settings[s].values[v], err);
        answer_config(&taken, v == 0 ? &first : &other, tested);
        differs = !taken || (v > 0 && first.fingerprint != other.fingerprint);
    }
    if (status != WEFT_OK || differs) return status;
    return WEFT_BROKEN(err,
                       "it declares and records the same if %s in config.json is %s or %s. Fix: implement the setting, "
                       "or reject a model with an unsupported value",
                       settings[s].key, settings[s].values[0], settings[s].values[1]);
}

static weft_status follows_its_config(weft_plugin_under_test *tested, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    pair p;
    json_t *root = NULL;
    weft_status status = first_of(&p, tested, path, err);
    pair_free(&p);
    if (status == WEFT_OK && !json_is_object(root = json_load_file(path, 0, NULL)))
        status = WEFT_MOOT(tested, err, "its config.json is no JSON object");
    for (size_t s = 0; s < sizeof settings / sizeof settings[0] && status == WEFT_OK; s++)
        if (settings[s].is_always || json_object_get(root, settings[s].key) != NULL)
            status = try_setting(tested, root, s, err);
    json_decref(root);
    return status;
}

/* ---- corrupt files ---- */

/* Calls the plugin's `create` with a text. An error must have a message. */
static weft_status create_from(bool *taken, const weft_plugin_under_test *tested, const char *path, const char *text,
                               weft_error *err) {
    const weft_model_plugin *table = weft_plugin_under_test_table(tested, model);
    const weft_model_source source = {(uint32_t)sizeof source, 0, path, text, strlen(text)};
    weft_error said = WEFT_ERROR_INIT;
    weft_model *model = NULL;
    char what[128];
    weft_call_record before = weft_plugin_enter(table, "create");
    *taken =
        weft_plugin_leave(before,
                          table->create(&model, weft_plugin_under_test_guarded_host(), tested->config, &source, &said),
                          NULL) == WEFT_OK;
    (void)snprintf(what, sizeof what, "a config.json that is '%.60s'", text);
    if (!*taken && said.text[0] == '\0')
        return WEFT_BROKEN(err, "it rejects a config.json that is '%.60s' without an error message", text);
    if (*taken) WEFT_PLUGIN_NOTIFY(table, destroy, model);
    return weft_plugin_under_test_refused(*taken ? WEFT_OK : WEFT_E_USER, model, what, err);
}

/* Checks a broken config.json: the plugin may accept or reject it, but must reject a text without any valid content. */
static weft_status check_broken(const weft_plugin_under_test *tested, const char *path, const char *text,
                                bool must_refuse, weft_error *err) {
    weft_declared *made = NULL;
    weft_error said = WEFT_ERROR_INIT;
    bool taken = false;
    weft_status status = create_from(&taken, tested, path, text, err);
    if (status != WEFT_OK || !taken) return status;
    if (must_refuse) return WEFT_BROKEN(err, "it accepts a config.json that is '%.60s'", text);
    status = weft_file_replace(path, text, strlen(text), err);
    if (status != WEFT_OK) return status;
    (void)weft_declared_create(&made, weft_plugin_under_test_guarded_host(),
                               weft_plugin_under_test_table(tested, model), tested->config, path, NULL,
                               &said); /* the host validates the declaration */
    weft_declared_destroy(made);
    return WEFT_OK;
}

/* Replaces the next number from `at` on. Returns where to continue, or NULL without a further number. */
static const char *change_number(char *out, size_t size, const char *text, const char *at, const char *number) {
    while (*at != '\0' && !(isdigit((unsigned char)*at) && (at[-1] == ' ' || at[-1] == ':'))) at++;
    if (*at == '\0') return NULL;
    (void)snprintf(out, size, "%.*s%s%s", (int)(at - text), text, number, at + strspn(at, "0123456789.eE+-"));
    return at + strspn(at, "0123456789.eE+-");
}

static weft_status try_numbers(const weft_plugin_under_test *tested, const char *path, const char *text, char *room,
                               size_t size, weft_error *err) {
    static const char *const numbers[] = {"-1",    "0",     "3",    "9",     "70",
                                          "300",   "1000",  "5000", "70000", "99999999999999999999",
                                          "1e300", "\"x\"", "null", "[]"};
    weft_status status = WEFT_OK;
    for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
        const char *at = text + 1;
        while (status == WEFT_OK && (at = change_number(room, size, text, at, numbers[n])) != NULL)
            status = check_broken(tested, path, room, false, err);
    }
    return status;
}

static weft_status try_texts(const weft_plugin_under_test *tested, const char *path, const char *text,
                             weft_error *err) {
    const size_t size = strlen(text) + 64;
    char *room = weft_alloc(size, 1);
    weft_status status = check_broken(tested, path, "", true, err);
    if (status == WEFT_OK) status = check_broken(tested, path, "{}", true, err);
    if (status == WEFT_OK) status = check_broken(tested, path, "no json", true, err);
    if (status == WEFT_OK) status = try_numbers(tested, path, text, room, size, err);
    free(room);
    return status;
}

static weft_status refuses_with_words(weft_plugin_under_test *tested, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    weft_status status = find_config(path, tested, err);
    if (status == WEFT_OK) status = weft_text_read(&text, &bytes, path, MOST_BYTES, err);
    if (status == WEFT_OK) status = try_texts(tested, "config.json", text, err);
    free(text);
    return status;
}

const weft_rule weft_rules_model[] = {
    {"R80", "declares the same on each call", declares_alike, false},
    {"R81", "accepts an unusual config.json or names its error", refuses_with_words, false},
    {"R82", "frees its memory", releases, false},
    {"R83", "declares and records the same with a host that has longer structs", works_later, false},
    {"R84", "records the same operators on each call", records_alike, false},
    {"R85", "has gradients equal to finite differences of its loss", has_gradients, false},
    {"R86", "reads only earlier positions of the same document", sees_its_past, false},
    {"R87", "computes a micro-batch the same, in any order of micro-batches", keeps_micro_batches_apart, false},
    {"R118", "follows the settings in config.json, or rejects them", follows_its_config, false},
    {"R119", "computes a sequence the same in micro-batches of any shape", computes_any_shape, false},
    {NULL, NULL, NULL, false}};
