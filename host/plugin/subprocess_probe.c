/* host/plugin/subprocess_probe.c: see subprocess_probe.h. The child writes one line of JSON to a pipe. */
#include "plugin/subprocess_probe.h"

#include "base/child.h"
#include "plugin/load.h"
#include "plugin/services.h"
#include <stdlib.h>
#include <sys/wait.h>

/* Size limit of a key table with all its strings. */
#define ANSWER_BYTES (2u << 20)

typedef struct question {
    const char *path, *kind, *id;
    const weft_trust *trust;
    weft_probe_result what;
} question;

/* --- in the child --- */

/* Loads the plugin that the file's name implies. */
static weft_status load_named(const weft_loaded **out, const question *asked, weft_error *err) {
    const weft_plugin_file *file = NULL;
    weft_status status = weft_plugin_file_load(&file, asked->path, asked->trust, err);
    if (status == WEFT_OK) status = weft_plugin_file_choose(out, file, asked->kind, asked->id, err);
    return status;
}

static json_t *key_answer(const weft_key *key) {
    return json_pack("{s:s, s:i, s:I, s:s?, s:s, s:s, s:s}", "name", key->name, "type", (int)key->type, "flags",
                     (json_int_t)key->flags, "default", key->fallback, "range", key->range, "unit", key->unit, "help",
                     key->help);
}

static void add_keys(json_t *answer, const weft_plugin *plugin) {
    json_t *keys = json_array();
    uint32_t head[2]; /* struct_size, flags: the start of every kind's table */
    memcpy(head, plugin->table, sizeof head);
    for (uint64_t i = 0; i < plugin->n_keys; i++) {
        const char *at = (const char *)plugin->keys + i * plugin->key_stride;
        (void)json_array_append_new(keys, key_answer((const weft_key *)(const void *)at));
    }
    (void)json_object_set_new(answer, "table_flags", json_integer(head[1]));
    (void)json_object_set_new(answer, "keys", keys);
}

/* Adds the reason if a loaded plugin reports that it cannot work here. */
static void add_reason(json_t *answer, const weft_plugin *plugin) {
    weft_error why = WEFT_ERROR_INIT;
    if (!WEFT_HAS(plugin, works) || plugin->works == NULL || plugin->works(weft_services(), &why) == WEFT_OK) return;
    (void)json_object_set_new(answer, "status", json_string("unusable"));
    (void)json_object_set_new(answer, "reason",
                              json_string(why.text[0] != 0 ? why.text : "it cannot work here and does not say why."));
}

static json_t *answer_of(const weft_loaded *loaded, weft_probe_result what) {
    const weft_plugin *plugin = loaded->plugin;
    json_t *answer = json_pack("{s:s, s:s, s:i, s:s, s:s}", "status", "ok", "version", plugin->version, "interface",
                               (int)plugin->interface_major, "help", plugin->help, "sha256", loaded->sha256);
    if (answer != NULL && what == WEFT_PROBE_KEYS) add_keys(answer, plugin);
    if (answer != NULL && what == WEFT_PROBE_LIST) add_reason(answer, plugin);
    return answer;
}

static void answer_in_child(int end, void *context) {
    const question *asked = context;
    const weft_loaded *loaded = NULL;
    weft_error err = WEFT_ERROR_INIT;
    json_t *answer = NULL;
    if (load_named(&loaded, asked, &err) == WEFT_OK) {
        answer = answer_of(loaded, asked->what);
    } else {
        const size_t n = strlen(asked->path);
        const size_t named = strncmp(err.text, asked->path, n) == 0 ? n + 1 : 0; /* the object has the path already */
        answer = json_pack("{s:s, s:s}", "status", "failed", "reason", err.text + named);
    }
    if (answer != NULL) (void)json_dumpfd(answer, end, JSON_COMPACT);
}

/* --- in the parent --- */

static json_t *make_failure(const char *format, ...) WEFT_PRINTF(1, 2);
static json_t *make_failure(const char *format, ...) {
    char reason[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return json_pack("{s:s, s:s}", "status", "failed", "reason", reason);
}

/* Returns the child's output, or the failure of the child. NULL: no memory. */
static json_t *judge_child(const weft_child *child, double seconds) {
    json_t *said = child->n > 0 ? json_loadb(child->text, child->n, 0, NULL) : NULL;
    if (said != NULL) return said;
    if (!child->in_time) return make_failure("it was not loaded within %g s and was ended.", seconds);
    if (WIFSIGNALED(child->status))
        return make_failure("it crashes while it is loaded: signal %d.", WTERMSIG(child->status));
    return make_failure("it ends the process while it is loaded (exit status %d).", WEXITSTATUS(child->status));
}

json_t *weft_plugin_probe(const char *path, const char *kind, const char *id, const weft_trust *trust,
                          weft_probe_result what, double seconds, weft_error *err) {
    question asked = {path, kind, id, trust, what};
    weft_child child;
    json_t *out = NULL;
    if (weft_child_run(&child, answer_in_child, &asked, ANSWER_BYTES, seconds, err) == WEFT_OK) {
        out = judge_child(&child, seconds);
        if (out == NULL) (void)weft_error_set(err, WEFT_E_MEMORY, "no memory for what %s says of itself.", path);
    }
    free(child.text);
    return out;
}
