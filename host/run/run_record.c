/* host/run/run_record.c: run.json as JSON. A loss that was not measured is null. */
#include "run/run_record.h"

#include "base/file.h"
#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum { FORMAT = 1 };

static const char *const masters_names[] = {"none", "trainable", "all"};

/* ---- writing ---- */

static json_t *loss_json(double loss) {
    return isfinite(loss) ? json_real(loss) : json_null();
}

static json_t *facts_json(const weft_identities *identities, bool noted) {
    json_t *facts = json_object();
    for (int32_t i = 0; i < identities->n; i++)
        if (identities->items[i].noted == noted)
            (void)json_object_set_new(facts, identities->items[i].name, json_string(identities->items[i].value));
    return facts;
}

static json_t *changes_json(const weft_identities *identities) {
    json_t *changes = json_array();
    for (int32_t i = 0; i < identities->n_changes; i++) {
        const weft_change *change = &identities->changes[i];
        (void)json_array_append_new(changes, json_pack("{s:I, s:s, s:s, s:s}", "step", (json_int_t)change->step, "name",
                                                       change->name, "from", change->from, "to", change->to));
    }
    return changes;
}

/* {key: {value, note}} in the order of the list. */
static json_t *choices_json(const weft_choices *choices) {
    json_t *object = json_object();
    for (int32_t i = 0; i < choices->n; i++)
        (void)json_object_set_new(object, choices->items[i].key,
                                  json_pack("{s:s, s:s}", "value", choices->items[i].value, "note",
                                            choices->items[i].note));
    return object;
}

static json_t *scale_json(const weft_loss_scale *scale) {
    return json_pack("{s:f, s:I, s:I}", "scale", (double)scale->scale, "good", (json_int_t)scale->good, "skipped",
                     (json_int_t)scale->skipped);
}

static json_t *record_json(const weft_record *record) {
    const weft_checkpoint_state *state = &record->state;
    json_t *json = json_pack("{s:i, s:I, s:I, s:I, s:o, s:o, s:I, s:s, s:s, s:o, s:o, s:o}", "format", FORMAT, "step",
                             (json_int_t)state->step, "updates", (json_int_t)record->updates, "tokens",
                             (json_int_t)state->tokens, "eval_loss", loss_json(state->eval_loss), "best_loss",
                             loss_json(state->best_loss), "best_step", (json_int_t)state->best_step, "stored_dtype",
                             weft_dtype_name(record->stored_dtype), "masters", masters_names[record->masters], "facts",
                             facts_json(&record->identities, false), "noted", facts_json(&record->identities, true),
                             "changes", changes_json(&record->identities));
    if (json != NULL && record->scale.scale > 0.0f)
        (void)json_object_set_new(json, "loss_scale", scale_json(&record->scale));
    if (json != NULL && record->choices.n > 0)
        (void)json_object_set_new(json, "choices", choices_json(&record->choices));
    return json;
}

weft_status weft_record_save(const weft_record *record, const char *path, weft_error *err) {
    json_t *json = record_json(record);
    size_t n = json_object_size(json_object_get(json, "facts")) + json_object_size(json_object_get(json, "noted"));
    char *text = NULL;
    weft_status status = WEFT_OK;
    /* A text that is not UTF-8 cannot stand in JSON: then it is missing here. */
    if (json != NULL && (n != (size_t)record->identities.n ||
                         json_array_size(json_object_get(json, "changes")) != (size_t)record->identities.n_changes))
        status = weft_error_set(err, WEFT_E_USER, "%s: a fact of the run is not UTF-8 text", path);
    if (status == WEFT_OK && json != NULL) text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    if (status == WEFT_OK && text == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for it", path);
    if (status == WEFT_OK) status = weft_file_replace(path, text, strlen(text), err);
    free(text);
    json_decref(json);
    return status;
}

/* ---- reading ---- */

/* Reads parts of one file; the first failure is kept. */
typedef struct reader {
    const json_t *json;
    const char *path;
    weft_status status;
    weft_error *err;
} reader;

static void note_wrong_key(reader *self, const char *key) {
    if (self->status == WEFT_OK)
        self->status =
            weft_error_set(self->err, WEFT_E_DATA, "%s: '%s' is missing or is not what it should be", self->path, key);
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

static int32_t read_dtype(reader *self, const char *key) {
    static const int32_t dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    const char *name = json_string_value(json_object_get(self->json, key));
    for (int i = 0; i < 3 && name != NULL; i++)
        if (strcmp(name, weft_dtype_name(dtypes[i])) == 0) return dtypes[i];
    note_wrong_key(self, key);
    return WEFT_F32;
}

static weft_masters read_masters(reader *self, const char *key) {
    const char *name = json_string_value(json_object_get(self->json, key));
    for (int i = 0; i < 3 && name != NULL; i++)
        if (strcmp(name, masters_names[i]) == 0) return (weft_masters)i;
    note_wrong_key(self, key);
    return WEFT_MASTERS_NONE;
}

static void read_facts(reader *self, weft_identities *out, const char *key, bool noted) {
    json_t *facts = json_object_get(self->json, key), *value = NULL;
    const char *name = NULL;
    weft_identity *items = realloc(out->items, ((size_t)out->n + json_object_size(facts) + 1) * sizeof *items);
    if (items == NULL) {
        self->status = weft_error_set(self->err, WEFT_E_MEMORY, "%s: no memory for its facts", self->path);
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

static void read_change(reader *self, weft_change *out, json_t *value) {
    json_int_t step = 0;
    const char *name = "", *from = "", *to = "";
    memset(out, 0, sizeof *out);
    if (json_unpack(value, "{s:I, s:s, s:s, s:s}", "step", &step, "name", &name, "from", &from, "to", &to) != 0) {
        note_wrong_key(self, "changes");
        return;
    }
    out->step = (uint64_t)step;
    (void)snprintf(out->name, sizeof out->name, "%s", name);
    (void)snprintf(out->from, sizeof out->from, "%s", from);
    (void)snprintf(out->to, sizeof out->to, "%s", to);
}

static void read_changes(reader *self, weft_identities *out) {
    const json_t *changes = json_object_get(self->json, "changes");
    const size_t n = json_array_size(changes);
    if (!json_is_array(changes)) note_wrong_key(self, "changes");
    out->changes = calloc(n + 1, sizeof *out->changes);
    if (out->changes == NULL) {
        self->status = weft_error_set(self->err, WEFT_E_MEMORY, "%s: no memory for its changes", self->path);
        return;
    }
    for (size_t i = 0; i < n; i++) read_change(self, &out->changes[i], json_array_get(changes, i));
    out->n_changes = (int32_t)n;
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
        if (self->status == WEFT_OK) self->status = weft_choices_add(out, &choice, self->err);
    }
}

/* None in checkpoints of runs that scale no losses. */
static void read_scale(reader *self, weft_loss_scale *out) {
    const json_t *json = json_object_get(self->json, "loss_scale");
    const reader within = {.json = json, .path = self->path};
    reader part = within;
    const json_t *scale = json_object_get(json, "scale");
    memset(out, 0, sizeof *out);
    if (json == NULL) return;
    part.err = self->err;
    out->scale = (float)json_number_value(scale);
    out->good = (int64_t)read_count(&part, "good");
    out->skipped = (int64_t)read_count(&part, "skipped");
    if (self->status == WEFT_OK) self->status = part.status;
    if (!json_is_number(scale) || !isfinite(out->scale) || out->scale <= 0.0f) note_wrong_key(self, "loss_scale");
}

static void read_record(reader *self, weft_record *out) {
    if (read_count(self, "format") != FORMAT) note_wrong_key(self, "format");
    out->state.step = read_count(self, "step");
    out->updates = read_count(self, "updates");
    out->state.tokens = read_count(self, "tokens");
    out->state.eval_loss = read_loss(self, "eval_loss");
    out->state.best_loss = read_loss(self, "best_loss");
    out->state.best_step = read_count(self, "best_step");
    read_scale(self, &out->scale);
    out->stored_dtype = read_dtype(self, "stored_dtype");
    out->masters = read_masters(self, "masters");
    read_facts(self, &out->identities, "facts", false);
    read_facts(self, &out->identities, "noted", true);
    read_changes(self, &out->identities);
    read_choices(self, &out->choices);
}

void weft_record_clear(weft_record *record) {
    weft_identities_clear(&record->identities);
    weft_choices_clear(&record->choices);
}

weft_status weft_record_load(weft_record *out, const char *path, weft_error *err) {
    json_t *json = NULL;
    reader self = {.path = path, .status = WEFT_OK, .err = err};
    memset(out, 0, sizeof *out);
    self.status = weft_json_read(&json, path, 0, err);
    self.json = json;
    if (self.status == WEFT_OK) read_record(&self, out);
    json_decref(json);
    return self.status;
}
