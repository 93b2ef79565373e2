/* host/run/run_record.c: run.json. A loss that was not measured is null. */
#include "run/save.h"

#include "base/file.h"
#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum { FORMAT = 1 };

static const char *const masters_names[] = {"none", "trainable", "all", NULL};

weft_status weft_record_save(const weft_record *record, const char *path, weft_error *err) {
    const weft_checkpoint_state *state = &record->state;
    const weft_identities *identities = &record->identities;
    json_t *facts = json_object(), *noted = json_object(), *changes = json_array(), *choices = json_object();
    json_t *json = NULL;
    char *text = NULL;
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
    for (int32_t i = 0; i < record->choices.n; i++) { /* in the order of the list */
        const weft_device_choice *choice = &record->choices.items[i];
        (void)json_object_set_new(choices, choice->key,
                                  json_pack("{s:s, s:s}", "value", choice->value, "note", choice->note));
    }
    complete = json_object_size(facts) + json_object_size(noted) == (size_t)identities->n &&
               json_array_size(changes) == (size_t)identities->n_changes;
    json = json_pack("{s:i, s:I, s:I, s:I, s:o, s:o, s:I, s:s, s:s, s:o, s:o, s:o}", "format", FORMAT, "step",
                     (json_int_t)state->step, "updates", (json_int_t)record->updates, "tokens",
                     (json_int_t)state->tokens, "eval_loss",
                     isfinite(state->eval_loss) ? json_real(state->eval_loss) : json_null(), "best_loss",
                     isfinite(state->best_loss) ? json_real(state->best_loss) : json_null(), "best_step",
                     (json_int_t)state->best_step, "stored_dtype", weft_dtype_name(record->stored_dtype), "masters",
                     masters_names[record->masters], "facts", facts, "noted", noted, "changes", changes);
    if (json != NULL && record->scale.scale > 0.0f)
        (void)json_object_set_new(json, "loss_scale",
                                  json_pack("{s:f, s:I, s:I}", "scale", (double)record->scale.scale, "good",
                                            (json_int_t)record->scale.good, "skipped",
                                            (json_int_t)record->scale.skipped));
    if (json != NULL && record->choices.n > 0) (void)json_object_set(json, "choices", choices);
    if (!complete) /* Jansson drops a text that is not UTF-8 */
        status = weft_error_set(err, WEFT_E_USER, "%s: a fact of the run is not UTF-8 text", path);
    if (status == WEFT_OK && json != NULL) text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    if (status == WEFT_OK && text == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for it", path);
    if (status == WEFT_OK) status = weft_file_replace(path, text, strlen(text), err);
    free(text);
    json_decref(choices);
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

static void note_no_memory(reader *self) {
    if (self->status == WEFT_OK)
        self->status = weft_error_set(self->err, WEFT_E_MEMORY, "%s: no memory for its facts", self->path);
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
    const size_t n = (size_t)out->n + json_object_size(facts) + 1;
    weft_identity *items = realloc(out->items, n * sizeof *items);
    if (items == NULL) {
        note_no_memory(self);
        return;
    }
    out->items = items;
    if (!json_is_object(facts)) note_wrong_key(self, key);
    json_object_foreach(facts, name, value) {
        weft_identity *item = &out->items[out->n++];
        memset(item, 0, sizeof *item);
        item->noted = noted;
        (void)snprintf(item->name, sizeof item->name, "%s", name);
        if (json_is_string(value)) (void)snprintf(item->value, sizeof item->value, "%s", json_string_value(value));
        else note_wrong_key(self, key);
    }
}

static void read_changes(reader *self, weft_identities *out) {
    const json_t *changes = json_object_get(self->json, "changes");
    const size_t n = json_array_size(changes);
    if (!json_is_array(changes)) note_wrong_key(self, "changes");
    out->changes = calloc(n + 1, sizeof *out->changes);
    if (out->changes == NULL) {
        note_no_memory(self);
        return;
    }
    out->n_changes = (int32_t)n;
    for (size_t i = 0; i < n; i++) {
        weft_change *change = &out->changes[i];
        json_int_t step = 0;
        const char *name = "", *from = "", *to = "";
        if (json_unpack(json_array_get(changes, i), "{s:I, s:s, s:s, s:s}", "step", &step, "name", &name, "from", &from,
                        "to", &to) != 0)
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
        if (self->status != WEFT_OK) return;
        if (json_unpack(row, "{s:s, s:s}", "value", &value, "note", &note) != 0) note_wrong_key(self, "choices");
        (void)snprintf(choice.key, sizeof choice.key, "%s", key);
        (void)snprintf(choice.value, sizeof choice.value, "%s", value);
        (void)snprintf(choice.note, sizeof choice.note, "%s", note);
        if (self->status == WEFT_OK) weft_choices_add(out, &choice);
    }
}

/* Only checkpoints of runs with a loss scale have one. */
static void read_scale(reader *self, weft_loss_scale *out) {
    const json_t *json = json_object_get(self->json, "loss_scale");
    reader part = {.json = json, .path = self->path, .err = self->err};
    const json_t *scale = json_object_get(json, "scale");
    memset(out, 0, sizeof *out);
    if (json == NULL) return;
    out->scale = (float)json_number_value(scale);
    out->good = (int64_t)read_count(&part, "good");
    out->skipped = (int64_t)read_count(&part, "skipped");
    if (self->status == WEFT_OK) self->status = part.status;
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
    reader self = {.path = path, .status = WEFT_OK, .err = err};
    memset(out, 0, sizeof *out);
    self.status = weft_json_read(&json, path, 0, err);
    self.json = json;
    if (self.status == WEFT_OK) {
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
    }
    json_decref(json);
    return self.status;
}
