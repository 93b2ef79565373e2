/* host/run/run_record.c: run.json, and the facts of a run in it. A loss that was not measured is null. */
#include "run/checkpoint.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "config/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { FORMAT = 1 };

static const char *const masters_names[] = {"none", "trainable", "all", NULL};

weft_status weft_record_save(const weft_record *record, const char *path, weft_error *err) {
    const weft_checkpoint_state *state = &record->state;
    const weft_identities *identities = &record->identities;
    json_t *facts = json_object(), *noted = json_object(), *changes = json_array(), *scale = NULL, *choices = NULL;
    json_t *json = NULL;
    bool complete = true;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < identities->n; i++)
        (void)json_object_set_new(identities->items[i].noted ? noted : facts, identities->items[i].name,
                                  json_string(identities->items[i].value));
    for (int32_t i = 0; i < identities->n_changes; i++) {
        const weft_change *change = &identities->changes[i];
        (void)json_array_append_new(changes, json_pack("{s:I, s:s, s:s, s:s}", "step", (json_int_t)change->step, "name",
                                                       change->name, "from", change->from, "to", change->to));
    }
    complete = json_object_size(facts) + json_object_size(noted) == (size_t)identities->n &&
               json_array_size(changes) == (size_t)identities->n_changes;
    if (record->scale.scale > 0.0f)
        scale = json_pack("{s:f, s:I, s:I}", "scale", (double)record->scale.scale, "good",
                          (json_int_t)record->scale.good, "skipped", (json_int_t)record->scale.skipped);
    if (record->choices.n > 0) choices = json_object();
    for (int32_t i = 0; i < record->choices.n; i++) { /* in the order of the list */
        const weft_device_choice *choice = &record->choices.items[i];
        (void)json_object_set_new(choices, choice->key,
                                  json_pack("{s:s, s:s}", "value", choice->value, "note", choice->note));
    }
    json = json_pack("{s:i, s:I, s:I, s:I, s:o?, s:o?, s:I, s:s, s:s, s:o, s:o, s:o, s:o*, s:o*}", "format", FORMAT,
                     "step", (json_int_t)state->step, "updates", (json_int_t)record->updates, "tokens",
                     (json_int_t)state->tokens, "eval_loss", json_real(state->eval_loss), "best_loss",
                     json_real(state->best_loss), "best_step", (json_int_t)state->best_step, "stored_dtype",
                     weft_dtype_name(record->stored_dtype), "masters", masters_names[record->masters], "facts", facts,
                     "noted", noted, "changes", changes, "loss_scale", scale, "choices", choices);
    if (complete) status = weft_file_write_json(path, json, JSON_INDENT(1) | JSON_REAL_PRECISION(17), err);
    else
        status =
            weft_error_set(err, WEFT_E_USER, "%s: a fact of the run is not UTF-8 text", path); /* Jansson drops it */
    json_decref(json);
    return status;
}

/* Keeps the first failure. */
typedef struct reader {
    const json_t *json;
    const char *path;
    weft_status status;
    weft_error *err;
} reader;

static void note_wrong_key(reader *self, const char *key) {
    if (self->status == WEFT_OK)
        self->status = weft_error_set(self->err, WEFT_E_DATA, "%s: '%s' is missing or invalid", self->path, key);
}

static uint64_t read_count(reader *self, const char *key) {
    const json_t *value = json_object_get(self->json, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) note_wrong_key(self, key);
    return (uint64_t)json_integer_value(value);
}

static double read_loss(reader *self, const char *key) {
    const json_t *value = json_object_get(self->json, key);
    if (!json_is_number(value) && !json_is_null(value)) note_wrong_key(self, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* Returns the index of a name; names: ended by NULL. */
static int32_t read_name(reader *self, const char *key, const char *const *names) {
    const char *name = json_string_value(json_object_get(self->json, key));
    for (int32_t i = 0; name != NULL && names[i] != NULL; i++)
        if (strcmp(name, names[i]) == 0) return i;
    note_wrong_key(self, key);
    return 0;
}

static void read_facts(reader *self, weft_identities *out, const char *key, bool noted) {
    json_t *facts = json_object_get(self->json, key), *value = NULL;
    const char *name = NULL;
    if (!json_is_object(facts)) note_wrong_key(self, key);
    out->items = weft_realloc(out->items, (size_t)out->n + json_object_size(facts), sizeof *out->items);
    json_object_foreach(facts, name, value) {
        weft_identity *item = &out->items[out->n++];
        *item = (weft_identity){.noted = noted};
        (void)snprintf(item->name, sizeof item->name, "%s", name);
        if (json_is_string(value)) (void)snprintf(item->value, sizeof item->value, "%s", json_string_value(value));
        else note_wrong_key(self, key);
    }
}

static void read_changes(reader *self, weft_identities *out) {
    const json_t *changes = json_object_get(self->json, "changes");
    if (!json_is_array(changes)) note_wrong_key(self, "changes");
    out->n_changes = (int32_t)json_array_size(changes);
    out->changes = weft_alloc(out->n_changes, sizeof *out->changes);
    for (int32_t i = 0; i < out->n_changes; i++) {
        weft_change *change = &out->changes[i];
        json_int_t step = 0;
        const char *name = "", *from = "", *to = "";
        if (json_unpack(json_array_get(changes, (size_t)i), "{s:I, s:s, s:s, s:s}", "step", &step, "name", &name,
                        "from", &from, "to", &to) != 0)
            note_wrong_key(self, "changes");
        change->step = (uint64_t)step;
        (void)snprintf(change->name, sizeof change->name, "%s", name);
        (void)snprintf(change->from, sizeof change->from, "%s", from);
        (void)snprintf(change->to, sizeof change->to, "%s", to);
    }
}

static void read_choices(reader *self, weft_choices *out) {
    json_t *choices = json_object_get(self->json, "choices"), *row = NULL;
    const char *key = NULL;
    json_object_foreach(choices, key, row) {
        weft_device_choice choice = {.struct_size = (uint32_t)sizeof choice};
        const char *value = "", *note = "";
        if (json_unpack(row, "{s:s, s:s}", "value", &value, "note", &note) != 0) note_wrong_key(self, "choices");
        (void)snprintf(choice.key, sizeof choice.key, "%s", key);
        (void)snprintf(choice.value, sizeof choice.value, "%s", value);
        (void)snprintf(choice.note, sizeof choice.note, "%s", note);
        weft_choices_add(out, &choice);
    }
}

/* Only checkpoints of runs with a loss scale have one. */
static void read_scale(reader *self, weft_loss_scale *out) {
    reader part = {.json = json_object_get(self->json, "loss_scale"), .path = self->path, .err = self->err};
    const json_t *scale = json_object_get(part.json, "scale");
    if (part.json == NULL) return;
    part.status = self->status;
    out->scale = (float)json_number_value(scale);
    out->good = (int64_t)read_count(&part, "good");
    out->skipped = (int64_t)read_count(&part, "skipped");
    self->status = part.status;
    if (!json_is_number(scale) || !isfinite(out->scale) || out->scale <= 0.0f) note_wrong_key(self, "loss_scale");
}

void weft_record_clear(weft_record *record) {
    weft_identities_clear(&record->identities);
    weft_choices_clear(&record->choices);
}

weft_status weft_record_load(weft_record *out, const char *path, weft_error *err) {
    const int32_t dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    const char *const dtype_names[] = {weft_dtype_name(WEFT_F32), weft_dtype_name(WEFT_BF16), weft_dtype_name(WEFT_F16),
                                       NULL};
    json_t *json = NULL;
    reader self = {.path = path, .err = err};
    memset(out, 0, sizeof *out);
    self.status = weft_json_read(&json, path, 0, err);
    if (self.status != WEFT_OK) return self.status;
    self.json = json;
    if (read_count(&self, "format") != FORMAT) note_wrong_key(&self, "format");
    out->state.step = read_count(&self, "step");
    out->updates = read_count(&self, "updates");
    out->state.tokens = read_count(&self, "tokens");
    out->state.eval_loss = read_loss(&self, "eval_loss");
    out->state.best_loss = read_loss(&self, "best_loss");
    out->state.best_step = read_count(&self, "best_step");
    read_scale(&self, &out->scale);
    out->stored_dtype = dtypes[read_name(&self, "stored_dtype", dtype_names)];
    out->masters = (weft_masters)read_name(&self, "masters", masters_names);
    read_facts(&self, &out->identities, "facts", false);
    read_facts(&self, &out->identities, "noted", true);
    read_changes(&self, &out->identities);
    read_choices(&self, &out->choices);
    json_decref(json);
    return self.status;
}

/* ---- the facts of a run, which restore.c compares
 *
 * Fixed facts determine the numbers of a step from the same state: batch, sequences, model, arithmetic. Noted facts
 * may be changed at any step (learning rate, schedule, length), or change no bit (strategy, policy, ...). ---- */

/* Keeps the first failure, so additions need no check. */
typedef struct collector {
    weft_identities *out;
    weft_status status;
    weft_error *err;
} collector;

WEFT_PRINTF(4, 5)
static void add_identity(collector *self, bool noted, const char *value, const char *name_format, ...) {
    enum { KEPT = 400 };
    weft_identity *item = NULL;
    char hex[65];
    va_list args;
    if (self->status != WEFT_OK) return;
    self->out->items = weft_realloc(self->out->items, self->out->n + 1, sizeof *item);
    item = &self->out->items[self->out->n++];
    *item = (weft_identity){.noted = noted};
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

static void print_whole(char text[64], int64_t value) {
    if (value == WEFT_NONE_I64) (void)snprintf(text, 64, "none");
    else if (value == WEFT_AUTO_I64) (void)snprintf(text, 64, "auto");
    else (void)snprintf(text, 64, "%" PRId64, value);
}

/* base: the struct that the key's table fills. */
static void add_key(collector *self, bool noted, const char *section, const weft_key *key, const void *base) {
    const char *at = (const char *)base + key->offset, *value = NULL, *choice = key->range;
    char text[64] = "";
    int64_t whole = 0;
    double real = 0;
    if ((key->flags & (WEFT_SECRET | WEFT_REMOVED)) != 0) return;
    memcpy(&whole, at, sizeof whole);
    memcpy(&real, at, sizeof real);
    switch (key->type) {
    case WEFT_KEY_I64: print_whole(text, whole); break;
    case WEFT_KEY_F64:
        if (real == WEFT_NONE_F64 || real == WEFT_AUTO_F64)
            (void)snprintf(text, sizeof text, "%s", real == WEFT_NONE_F64 ? "none" : "auto");
        else weft_number_print(text, sizeof text, real);
        break;
    case WEFT_KEY_BOOL: (void)snprintf(text, sizeof text, "%s", whole != 0 ? "yes" : "no"); break;
    case WEFT_KEY_ENUM: /* by its index among the comma-separated names */
        while (whole-- > 0 && strchr(choice, ',') != NULL) choice = strchr(choice, ',') + 1;
        choice += strspn(choice, " ");
        (void)snprintf(text, sizeof text, "%.*s", (int)strcspn(choice, ", "), choice);
        break;
    default: memcpy(&value, at, sizeof value); break;
    }
    add_identity(self, noted, value != NULL ? value : text, "[%s] %s", section, key->name);
}

/* Adds all keys of [train], except the default of `weights`, which older runs lack; and [model] base, if it is set. */
static void add_settings(collector *self, const weft_settings *settings) {
    static const char *const fixed[] = {"global_batch", "micro_batch", "precision", "trainable", "weights", NULL};
    weft_settings_section table;
    for (size_t i = 0; weft_settings_table(&table, i); i++)
        for (uint64_t k = 0; k < table.n; k++) {
            const char *name = table.keys[k].name, *const *of = fixed;
            const bool of_train = strcmp(table.section, "train") == 0, of_model = strcmp(table.section, "model") == 0;
            while (*of != NULL && strcmp(name, *of) != 0) of++;
            if ((of_train && (strcmp(name, "weights") != 0 || settings->train.weights != WEFT_STORED_FP32)) ||
                (of_model && strcmp(name, "base") == 0 && settings->model.base != WEFT_BASE_AUTO))
                add_key(self, of_train && *of == NULL, table.section, &table.keys[k],
                        (const char *)settings + table.offset);
        }
}

/* Adds a plugin's own keys. */
static void add_part_keys(collector *self, bool noted, const char *section, const weft_part *part) {
    for (uint64_t i = 0; part->loaded != NULL && i < part->loaded->plugin->n_keys; i++) {
        const void *row = (const char *)part->loaded->plugin->keys + i * part->loaded->plugin->key_stride;
        add_key(self, noted, section, row, part->config);
    }
}

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

/* Hashes config.json as sorted text: spacing and order do not count. */
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

/* reduce: the definition of the batch gradient. Processors with one instruction set compute the same bits. Of other
 * devices the model counts too: libraries select algorithms by it. */
static void add_numbers(collector *self, const weft_engine *engine, uint64_t data_fingerprint) {
    static const char *const names[] = {"ordered", "tree", "fast"};
    const weft_plan_spec *spec = &engine->plan.spec;
    const weft_device_info *device = &engine->device_info;
    const weft_job *job = engine->plan.train.job;
    const weft_coverage *coverage = &engine->plan.train.coverage;
    const int32_t reduce = job == NULL ? WEFT_REDUCE_ORDERED : job->spec.view.reduce;
    const int32_t dtype = job == NULL ? WEFT_F32 : job->spec.view.reduce_dtype;
    char text[600] = "";
    for (int32_t i = 0; i < spec->n_lengths; i++)
        weft_words_append(text, 64, "%s%d", i == 0 ? "" : ", ", spec->lengths[i]);
    add_identity(self, false, text, "lengths of sequences");
    print_whole(text, engine->plan.layout->grid);
    add_identity(self, false, text, "grid");
    (void)snprintf(text, sizeof text, "%s%s%s", names[reduce], dtype == WEFT_F32 ? "" : ", of micro-batches in ",
                   dtype == WEFT_F32 ? "" : weft_dtype_name(dtype));
    add_identity(self, false, text, "reduce");
    (void)snprintf(text, sizeof text, "%s%s",
                   coverage->covered ? "covered" : "not covered: ", coverage->covered ? "" : coverage->why);
    if (job != NULL) add_identity(self, true, text, "the contract of equal bits");
    print_whole(text, engine->plan.run->settings.run.seed);
    add_identity(self, false, text, "[run] seed");
    (void)snprintf(text, sizeof text, "%016" PRIx64, data_fingerprint);
    add_identity(self, false, text, "the sequences of the data");
    if ((device->flags & WEFT_DEVICE_SHARES_MACHINE) == 0)
        add_identity(self, false, device->name, "the device's model");
    add_identity(self, false, device->isa, "the device's instruction set");
    add_identity(self, false, device->backend, "the device's backend");
}

weft_status weft_identities_collect(weft_identities *out, const weft_engine *engine, uint64_t data_fingerprint,
                                    weft_error *err) {
    const weft_plan *plan = &engine->plan;
    const weft_run *run = plan->run;
    const weft_part *optimizer = &run->parts[WEFT_PART_OPTIMIZER];
    const weft_key *key = NULL;
    uint32_t flag = 0;
    collector self = {.out = out, .status = WEFT_OK, .err = err};
    memset(out, 0, sizeof *out);
    add_settings(&self, &run->settings);
    add_numbers(&self, engine, data_fingerprint);
    if (self.status == WEFT_OK) add_model(&self, plan->declared);
    add_plugins(&self, run);
    for (int32_t i = WEFT_PART_ADAPTER; i < WEFT_N_PARTS; i++)
        add_part_keys(&self, false, weft_run_section(run, i), &run->parts[i]);
    if (plan->declared->n_adapters > 0) add_identity(&self, false, plan->origins[0].base, "the base's weights");
    add_part_keys(&self, true, "optimizer", optimizer); /* and the host's keys that it supports */
    for (size_t i = 0; optimizer->loaded != NULL && (key = weft_capability_at(WEFT_PART_OPTIMIZER, i, &flag)) != NULL;
         i++)
        if ((weft_capabilities_of(optimizer->loaded) & flag) != 0)
            add_key(&self, true, "optimizer", key, &run->settings.optimizer);
    for (int64_t i = 0; i < plan->n_states; i++) /* fp32 is the default of older runs */
        if (plan->states[i].dtype != WEFT_F32)
            add_identity(&self, false, weft_dtype_name(plan->states[i].dtype), "state %s", plan->states[i].name);
    return self.status;
}

void weft_identities_clear(weft_identities *identities) {
    free(identities->items);
    free(identities->changes);
    memset(identities, 0, sizeof *identities);
}
