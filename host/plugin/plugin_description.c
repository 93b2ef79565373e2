/* host/plugin/plugin_description.c: see plugin_description.h. */
#include "plugin/plugin_description.h"

#include "plugin/subprocess_probe.h"

#include <stdlib.h>

static const char *text_at(const json_t *object, const char *name) {
    return json_string_value(json_object_get(object, name));
}

static uint32_t flags_at(const json_t *object, const char *name) {
    return (uint32_t)json_integer_value(json_object_get(object, name));
}

static weft_key key_at(const json_t *object) {
    const weft_key key = {(uint32_t)sizeof key,
                          flags_at(object, "flags"),
                          (int32_t)json_integer_value(json_object_get(object, "type")),
                          0,
                          text_at(object, "name"),
                          text_at(object, "default"),
                          text_at(object, "range"),
                          text_at(object, "unit"),
                          text_at(object, "help")};
    return key;
}

static weft_status take_answer(weft_plugin_description *self, weft_error *err) {
    const json_t *answer = self->answer, *keys = json_object_get(answer, "keys");
    const char *reason = text_at(answer, "reason");
    const size_t n = json_array_size(keys);
    if (keys == NULL)
        (void)snprintf(self->reason, sizeof self->reason, "%.1000s", reason != NULL ? reason : "it gives no keys.");
    self->flags = flags_at(answer, "table_flags");
    self->keys = calloc(n + 1, sizeof *self->keys);
    if (self->keys == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the keys of %s", self->id);
    for (size_t i = 0; i < n; i++) self->keys[self->n_keys++] = key_at(json_array_get(keys, i));
    return WEFT_OK;
}

weft_status weft_plugin_describe(weft_plugin_description **out, const weft_plugins *plugins, const char *kind,
                                 const char *id, weft_error *err) {
    char path[4096];
    const weft_status status = weft_plugins_find(plugins, path, sizeof path, kind, id, err);
    if (status != WEFT_OK) return status;
    return weft_plugin_describe_file(out, weft_plugins_trust(plugins), kind, id, path, err);
}

weft_status weft_plugin_describe_file(weft_plugin_description **out, const weft_trust *trust, const char *kind,
                                      const char *id, const char *path, weft_error *err) {
    weft_plugin_description *self = calloc(1, sizeof *self);
    weft_status status = WEFT_OK;
    if (self == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the keys of %s", id);
    (void)snprintf(self->kind, sizeof self->kind, "%s", kind);
    (void)snprintf(self->id, sizeof self->id, "%s", id);
    self->answer = weft_plugin_probe(path, kind, id, trust, WEFT_PROBE_KEYS, WEFT_PROBE_SECONDS, err);
    status = self->answer == NULL ? WEFT_E_SYSTEM : take_answer(self, err);
    if (status == WEFT_OK) *out = self;
    else weft_plugin_description_free(self);
    return status;
}

void weft_plugin_description_free(weft_plugin_description *self) {
    if (self == NULL) return;
    json_decref(self->answer);
    free(self->keys);
    free(self);
}

weft_status weft_plugin_description_add(weft_plugin_description *self, const weft_key *key, weft_error *err) {
    weft_key *grown = realloc(self->keys, (self->n_keys + 1) * sizeof *grown);
    if (grown == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the keys of %s", self->id);
    self->keys = grown;
    self->keys[self->n_keys++] = *key;
    return WEFT_OK;
}

const weft_key *weft_plugin_description_key(const weft_plugin_description *self, const char *name) {
    for (uint64_t i = 0; i < self->n_keys; i++) {
        if ((self->keys[i].flags & WEFT_REMOVED) == 0 && strcmp(self->keys[i].name, name) == 0) return &self->keys[i];
    }
    return NULL;
}
