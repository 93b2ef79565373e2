/* host/plugin/subprocess_probe.c: The child writes one line of JSON to a pipe. */
#include "plugin/subprocess_probe.h"

#include "base/alloc.h"
#include "base/child.h"
#include "plugin/load.h"
#include "plugin/services.h"
#include <stdlib.h>
#include <sys/wait.h>

/* Size limit of a key table with all its strings. */
#define ANSWER_BYTES (2u << 20)

typedef struct probe {
    const char *path, *kind, *id;
    const weft_trust *trust; /* NULL trusts all */
    bool with_keys;
} probe;

/* ---- in the child ---- */

/* Adds the flags of the kind's table, and an array of {name, type, flags, default, range, unit, help} as in weft_key.
 */
static void add_keys(json_t *answer, const weft_plugin *plugin) {
    json_t *keys = json_array();
    uint32_t head[2]; /* struct_size, flags: the start of every kind's table */
    memcpy(head, plugin->table, sizeof head);
    for (uint64_t i = 0; i < plugin->n_keys; i++) {
        const char *at = (const char *)plugin->keys + i * plugin->key_stride;
        const weft_key *key = (const weft_key *)(const void *)at;
        (void)json_array_append_new(keys,
                                    json_pack("{s:s, s:i, s:I, s:s*, s:s, s:s, s:s}", "name", key->name, "type",
                                              (int)key->type, "flags", (json_int_t)key->flags, "default", key->fallback,
                                              "range", key->range, "unit", key->unit, "help", key->help));
    }
    (void)json_object_set_new(answer, "table_flags", json_integer(head[1]));
    (void)json_object_set_new(answer, "keys", keys);
}

static void answer_in_child(int end, void *context) {
    const probe *self = context;
    const weft_loaded *loaded = NULL;
    weft_error err = WEFT_ERROR_INIT;
    json_t *answer = NULL;
    const char *reason = NULL;
    if (weft_plugin_load(&loaded, self->path, self->trust, self->kind, self->id, &err) == WEFT_OK) {
        const weft_plugin *plugin = loaded->plugin;
        answer = json_pack("{s:s, s:s, s:i, s:s, s:s}", "status", "ok", "version", plugin->version, "interface",
                           (int)plugin->interface_major, "help", plugin->help, "sha256", loaded->sha256);
        if (self->with_keys) add_keys(answer, plugin);
        else if (WEFT_HAS(plugin, works) && plugin->works != NULL && plugin->works(weft_services(), &err) != WEFT_OK) {
            (void)json_object_set_new(answer, "status", json_string("unusable"));
            reason = err.text[0] != 0 ? err.text : "it cannot work here, without a reason.";
        }
    } else {
        const size_t n = strlen(self->path);
        reason = err.text + (strncmp(err.text, self->path, n) == 0 ? n + 1 : 0); /* the object has the path already */
        answer = json_pack("{s:s}", "status", "failed");
    }
    if (reason != NULL) (void)json_object_set_new(answer, "reason", json_string(reason));
    (void)json_dumpfd(answer, end, JSON_COMPACT);
}

/* ---- in the parent ---- */

/* Returns the child's answer, or an object with the reason why it has none. NULL: no child process, see err. */
static json_t *run_probe(probe self, double seconds, weft_error *err) {
    weft_child child;
    json_t *out = NULL;
    char reason[128];
    if (weft_child_run(&child, answer_in_child, &self, ANSWER_BYTES, seconds, err) != WEFT_OK) {
        free(child.text);
        return NULL;
    }
    if (child.n > 0) out = json_loadb(child.text, child.n, 0, NULL);
    free(child.text);
    if (out != NULL) return out;
    if (!child.in_time) (void)snprintf(reason, sizeof reason, "it was not loaded within %g s and was ended.", seconds);
    else if (WIFSIGNALED(child.status))
        (void)snprintf(reason, sizeof reason, "it crashes while it is loaded: signal %d.", WTERMSIG(child.status));
    else
        (void)snprintf(reason, sizeof reason, "it ends the process while it is loaded (exit status %d).",
                       WEXITSTATUS(child.status));
    return json_pack("{s:s, s:s}", "status", "failed", "reason", reason);
}

json_t *weft_plugin_probe(const weft_found *file, double seconds, weft_error *err) {
    return run_probe((probe){file->path, file->kind, file->id, NULL, false}, seconds, err);
}

/* ---- one plugin's keys ---- */

weft_status weft_plugin_describe(weft_plugin_description **out, const weft_plugins *plugins, const char *kind,
                                 const char *id, weft_error *err) {
    char path[4096];
    const weft_status status = weft_plugins_find(plugins, path, sizeof path, kind, id, err);
    if (status != WEFT_OK) return status;
    return weft_plugin_describe_file(out, weft_plugins_trust(plugins), kind, id, path, err);
}

weft_status weft_plugin_describe_file(weft_plugin_description **out, const weft_trust *trust, const char *kind,
                                      const char *id, const char *path, weft_error *err) {
    weft_plugin_description *self = NULL;
    json_t *answer = run_probe((probe){path, kind, id, trust, true}, WEFT_PROBE_SECONDS, err), *one = NULL;
    const json_t *keys = json_object_get(answer, "keys");
    const char *reason = "it returns no keys.";
    json_int_t flags = 0;
    size_t i = 0;
    if (answer == NULL) return WEFT_E_SYSTEM;
    (void)json_unpack(answer, "{s?s, s?I}", "reason", &reason, "table_flags", &flags);
    self = weft_alloc(1, sizeof *self);
    self->answer = answer;
    self->flags = (uint32_t)flags;
    (void)snprintf(self->kind, sizeof self->kind, "%s", kind);
    (void)snprintf(self->id, sizeof self->id, "%s", id);
    if (keys == NULL) (void)snprintf(self->reason, sizeof self->reason, "%.1000s", reason);
    self->keys = weft_alloc(json_array_size(keys), sizeof *self->keys);
    self->n_keys = json_array_size(keys);
    json_array_foreach(keys, i, one) {
        weft_key *key = &self->keys[i];
        key->struct_size = (uint32_t)sizeof *key;
        (void)json_unpack(one, "{s:s, s:i, s:I, s?s, s:s, s:s, s:s}", "name", &key->name, "type", &key->type, "flags",
                          &flags, "default", &key->fallback, "range", &key->range, "unit", &key->unit, "help",
                          &key->help);
        key->flags = (uint32_t)flags;
    }
    *out = self;
    return WEFT_OK;
}

void weft_plugin_description_free(weft_plugin_description *self) {
    if (self == NULL) return;
    json_decref(self->answer);
    free(self->keys);
    free(self);
}

void weft_plugin_description_add(weft_plugin_description *self, const weft_key *key) {
    self->keys = weft_realloc(self->keys, self->n_keys + 1, sizeof *self->keys);
    self->keys[self->n_keys++] = *key;
}

const weft_key *weft_plugin_description_key(const weft_plugin_description *self, const char *name) {
    for (uint64_t i = 0; i < self->n_keys; i++)
        if ((self->keys[i].flags & WEFT_REMOVED) == 0 && strcmp(self->keys[i].name, name) == 0) return &self->keys[i];
    return NULL;
}
