/* host/run/identities.c: the facts of a run, collected. Comparing them is compare.c's.
 *
 * What is fixed decides which numbers a step gives from the same state: batch, rows, model, arithmetic. What is noted
 * are choices that a user may make anew at any step (learning rate, schedule, length), and where the work is done
 * (strategy, policy, communicator), which changes no bit. */
#include "run/checkpoint.h"

#include "base/hash.h"
#include "base/text.h"
#include "config/number.h"
#include "program/capabilities.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

/* A list that grows; the first failure is kept, so that adding needs no check of its own. */
typedef struct collector {
    weft_identities *out;
    weft_status status;
    weft_error *err;
} collector;

static void add_identity(collector *self, bool noted, const char *value, const char *name_format, ...)
    WEFT_PRINTF(4, 5);
static void add_identity(collector *self, bool noted, const char *value, const char *name_format, ...) {
    enum { KEPT = 400 };
    weft_identity *items = NULL, *item = NULL;
    char hex[65];
    va_list args;
    if (self->status != WEFT_OK) return;
    items = realloc(self->out->items, ((size_t)self->out->n + 1) * sizeof *items);
    if (items == NULL) {
        self->status = weft_error_set(self->err, WEFT_E_MEMORY, "no memory for the facts of the run");
        return;
    }
    self->out->items = items;
    item = &items[self->out->n++];
    memset(item, 0, sizeof *item);
    item->noted = noted;
    va_start(args, name_format);
    (void)vsnprintf(item->name, sizeof item->name, name_format, args);
    va_end(args);
    if (strlen(value) < sizeof item->value) {
        (void)snprintf(item->value, sizeof item->value, "%s", value);
        return;
    }
    self->status = weft_hash_text(hex, value, strlen(value), self->err);
    if (self->status == WEFT_OK)
        (void)snprintf(item->value, sizeof item->value, "%.*s... (sha256 %s)", KEPT, value, hex);
}

/* ---- keys ---- */

static void print_real(char text[64], double value) {
    if (value == WEFT_NONE_F64 || value == WEFT_AUTO_F64)
        (void)snprintf(text, 64, "%s", value == WEFT_NONE_F64 ? "none" : "auto");
    else weft_number_print(text, 64, value);
}

static void print_whole(char text[64], int64_t value) {
    if (value == WEFT_NONE_I64) (void)snprintf(text, 64, "none");
    else if (value == WEFT_AUTO_I64) (void)snprintf(text, 64, "auto");
    else (void)snprintf(text, 64, "%" PRId64, value);
}

/* The index-th of the comma-separated names in range. */
static void print_choice(char text[64], const char *range, int64_t index) {
    while (index-- > 0 && strchr(range, ',') != NULL) range = strchr(range, ',') + 1;
    range += strspn(range, " ");
    (void)snprintf(text, 64, "%.*s", (int)strcspn(range, ", "), range);
}

/* base: the struct that the key's table fills. */
static void add_key(collector *self, bool noted, const char *section, const weft_key *key, const void *base) {
    const char *at = (const char *)base + key->offset, *value = NULL;
    char text[64] = "";
    int64_t whole = 0;
    double real = 0;
    if ((key->flags & (WEFT_SECRET | WEFT_REMOVED)) != 0) return;
    memcpy(&whole, at, sizeof whole);
    memcpy(&real, at, sizeof real);
    switch (key->type) {
    case WEFT_KEY_I64: print_whole(text, whole); break;
    case WEFT_KEY_F64: print_real(text, real); break;
    case WEFT_KEY_BOOL: (void)snprintf(text, sizeof text, "%s", whole != 0 ? "yes" : "no"); break;
    case WEFT_KEY_ENUM: print_choice(text, key->range, whole); break;
    default: memcpy(&value, at, sizeof value); break;
    }
    add_identity(self, noted, value != NULL ? value : text, "[%s] %s", section, key->name);
}

static bool is_one_of(const char *name, const char *const *names) {
    while (*names != NULL && strcmp(name, *names) != 0) names++;
    return *names != NULL;
}

/* Every key of [train], but for one that asks for what runs of before it did; these are fixed: */
static void add_train_keys(collector *self, const weft_settings *settings) {
    static const char *const fixed[] = {"global_batch", "micro_batch", "precision", "trainable", "weights", NULL};
    weft_settings_section table;
    for (size_t i = 0; weft_settings_table(&table, i); i++) {
        if (strcmp(table.section, "train") != 0) continue;
        for (uint64_t k = 0; k < table.n; k++)
            if (strcmp(table.keys[k].name, "weights") != 0 || settings->train.weights != WEFT_STORED_FP32)
                add_key(self, !is_one_of(table.keys[k].name, fixed), "train", &table.keys[k],
                        (const char *)settings + table.offset);
    }
}

/* In which type the base lies for good, where that is said. */
static void add_base(collector *self, const weft_settings *settings) {
    weft_settings_section table;
    for (size_t i = 0; settings->model.base != WEFT_BASE_AUTO && weft_settings_table(&table, i); i++)
        for (uint64_t k = 0; strcmp(table.section, "model") == 0 && k < table.n; k++)
            if (strcmp(table.keys[k].name, "base") == 0)
                add_key(self, false, "model", &table.keys[k], (const char *)settings + table.offset);
}

/* They decide what an adapter is ... */
static void add_adapter_keys(collector *self, const weft_run *run, int32_t index) {
    const weft_part *part = &run->parts[index];
    for (uint64_t i = 0; part->loaded != NULL && i < part->loaded->plugin->n_keys; i++) {
        const void *row = (const char *)part->loaded->plugin->keys + i * part->loaded->plugin->key_stride;
        add_key(self, false, weft_run_section(run, index), row, part->config);
    }
}

/* ... and what they stand on does. */
static void add_adapters(collector *self, const weft_plan *plan) {
    for (int32_t i = WEFT_PART_ADAPTER; i < WEFT_N_PARTS; i++) add_adapter_keys(self, plan->run, i);
    if (plan->declared->n_adapters > 0) add_identity(self, false, plan->origins[0].base, "the base's weights");
}

/* Its own, and those of the host that it offers. */
static void add_optimizer_keys(collector *self, const weft_run *run) {
    const weft_part *part = &run->parts[WEFT_PART_OPTIMIZER];
    const weft_loaded *loaded = part->loaded;
    const weft_key *offer = NULL;
    uint32_t flag = 0;
    for (uint64_t i = 0; loaded != NULL && i < loaded->plugin->n_keys; i++) {
        const void *row = (const char *)loaded->plugin->keys + i * loaded->plugin->key_stride;
        add_key(self, true, "optimizer", row, part->config);
    }
    for (size_t i = 0; loaded != NULL && (offer = weft_capability_at(WEFT_PART_OPTIMIZER, i, &flag)) != NULL; i++)
        if ((weft_capabilities_of(loaded) & flag) != 0)
            add_key(self, true, "optimizer", offer, &run->settings.optimizer);
}

/* Only where they are not what a run of before this key kept. */
static void add_states(collector *self, const weft_plan *plan) {
    for (int64_t i = 0; i < plan->n_states; i++)
        if (plan->states[i].dtype != WEFT_F32)
            add_identity(self, false, weft_dtype_name(plan->states[i].dtype), "state %s", plan->states[i].name);
}

/* ---- plugins, model, device ---- */

static void add_plugins(collector *self, const weft_run *run) {
    for (int32_t i = 0; i < WEFT_N_PARTS; i++) {
        const weft_loaded *loaded = run->parts[i].loaded;
        const bool noted = i == WEFT_PART_POLICY || i == WEFT_PART_STRATEGY || i == WEFT_PART_COMM;
        char value[256];
        if (loaded == NULL) continue;
        (void)snprintf(value, sizeof value, "%s %s (sha256 %s)", loaded->plugin->id, loaded->plugin->version,
                       loaded->sha256);
        if (i > WEFT_PART_ADAPTER) add_identity(self, noted, value, "adapter plugin %d", i - WEFT_PART_ADAPTER + 1);
        else add_identity(self, noted, value, "%s plugin", weft_part_name(i));
    }
}

/* Of config.json as a sorted text, so that spacing and order do not count. */
static void add_model(collector *self, const weft_declared *declared) {
    char hex[65], value[96], *text = NULL;
    json_t *json = NULL;
    (void)weft_json_parse(&json, declared->config_text, declared->config_bytes, 0, declared->config_path, NULL);
    text = json == NULL ? NULL : json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    if (text == NULL)
        self->status =
            weft_error_set(self->err, WEFT_E_DATA, "%s: cannot be read as JSON again", declared->config_path);
    if (self->status == WEFT_OK) self->status = weft_hash_text(hex, text, strlen(text), self->err);
    if (self->status == WEFT_OK) {
        (void)snprintf(value, sizeof value, "sha256 %s", hex);
        add_identity(self, false, value, "the model's config.json");
    }
    free(text);
    json_decref(json);
}

static void add_lengths(collector *self, const weft_plan_spec *spec) {
    char text[64] = "";
    for (int32_t i = 0; i < spec->n_lengths; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i == 0 ? "" : ", ", spec->lengths[i]);
    add_identity(self, false, text, "lengths of rows");
}

/* The definition of the batch gradient, and whether this run's strategy keeps to it on any number of ranks. */
static void add_sums(collector *self, const weft_engine *engine) {
    static const char *const names[] = {"ordered", "tree", "fast"};
    const weft_job *job = engine->plan.train.job;
    const weft_coverage *coverage = &engine->plan.train.coverage;
    char text[600];
    const int32_t reduce = job == NULL ? WEFT_REDUCE_ORDERED : job->spec.view.reduce;
    const int32_t dtype = job == NULL ? WEFT_F32 : job->spec.view.reduce_dtype;
    (void)snprintf(text, sizeof text, "%s%s%s", names[reduce], dtype == WEFT_F32 ? "" : ", of micro-batches in ",
                   dtype == WEFT_F32 ? "" : weft_dtype_name(dtype));
    add_identity(self, false, text, "reduce");
    if (job == NULL) return;
    (void)snprintf(text, sizeof text, "%s%s",
                   coverage->covered ? "covered" : "not covered: ", coverage->covered ? "" : coverage->why);
    add_identity(self, true, text, "the contract of equal bits");
}

/* Processors with one instruction set give the same bits, whoever made them. Of other devices the model decides with
 * it: how many parts of a card work on a product is the library's choice by that. */
static void add_device(collector *self, const weft_device_info *device) {
    if ((device->flags & WEFT_DEVICE_SHARES_MACHINE) == 0)
        add_identity(self, false, device->name, "the device's model");
    add_identity(self, false, device->isa, "the device's instruction set");
    add_identity(self, false, device->backend, "the device's backend");
}

static void add_numbers(collector *self, const weft_engine *engine, uint64_t data_fingerprint) {
    char text[64];
    print_whole(text, engine->plan.layout->grid);
    add_identity(self, false, text, "grid");
    add_sums(self, engine);
    print_whole(text, engine->plan.run->settings.run.seed);
    add_identity(self, false, text, "[run] seed");
    (void)snprintf(text, sizeof text, "%016" PRIx64, data_fingerprint);
    add_identity(self, false, text, "the rows of the data");
    add_device(self, &engine->device_info);
}

weft_status weft_identities_collect(weft_identities *out, const weft_engine *engine, uint64_t data_fingerprint,
                                    weft_error *err) {
    collector self = {.out = out, .status = WEFT_OK, .err = err};
    memset(out, 0, sizeof *out);
    add_train_keys(&self, &engine->plan.run->settings);
    add_base(&self, &engine->plan.run->settings);
    add_lengths(&self, &engine->plan.spec);
    add_numbers(&self, engine, data_fingerprint);
    if (self.status == WEFT_OK) add_model(&self, engine->plan.declared);
    add_plugins(&self, engine->plan.run);
    add_adapters(&self, &engine->plan);
    add_optimizer_keys(&self, engine->plan.run);
    add_states(&self, &engine->plan);
    return self.status;
}

void weft_identities_clear(weft_identities *identities) {
    free(identities->items);
    free(identities->changes);
    memset(identities, 0, sizeof *identities);
}
