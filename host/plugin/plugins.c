/* host/plugin/plugins.c: the plugin registry, see plugin.h. The search uses directories and file names only and opens
 * no file. */
#include "plugin/plugin.h"

#include "base/alloc.h"
#include "base/child.h"
#include "base/file.h"
#include "config/nearest.h"
#include "plugin/load.h"
#include "plugin/services.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { MOST_DIRECTORIES = 64 };

struct weft_plugins {
    char *directories[MOST_DIRECTORIES]; /* in search order, without duplicates */
    size_t n_directories;
    weft_trust trust;
};

/* ---- directories ---- */

static weft_status add_directory(weft_plugins *self, const char *from, const char *path, size_t n, weft_error *err) {
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0) return WEFT_OK;
    if (path[0] != '/')
        return weft_error_set(err, WEFT_E_USER,
                              "%s contains the directory %.*s, which is not absolute. Plugins are never searched "
                              "relative to the working directory; write the complete path.",
                              from, (int)(n > 500 ? 500 : n), path);
    for (size_t i = 0; i < self->n_directories; i++)
        if (strlen(self->directories[i]) == n && memcmp(self->directories[i], path, n) == 0) return WEFT_OK;
    if (self->n_directories == MOST_DIRECTORIES)
        return weft_error_set(err, WEFT_E_USER, "%s: more than %d plugin directories.", from, MOST_DIRECTORIES);
    self->directories[self->n_directories++] = weft_text_of("%.*s", (int)n, path);
    return WEFT_OK;
}

/* separators: between its directories. */
static weft_status add_list(weft_plugins *self, const char *from, const char *list, const char *separators,
                            weft_error *err) {
    weft_status status = WEFT_OK;
    for (size_t n = 0; list != NULL && *list != '\0' && status == WEFT_OK; list += n + (list[n] != '\0')) {
        n = strcspn(list, separators);
        status = add_directory(self, from, list, n, err);
    }
    return status;
}

/* Adds "base/below" if the base is an absolute path. */
static weft_status add_below(weft_plugins *self, const char *from, const char *base, const char *below,
                             weft_error *err) {
    char path[PATH_MAX];
    const int n = base == NULL || base[0] != '/' ? -1 : snprintf(path, sizeof path, "%s/%s", base, below);
    if (n < 0 || (size_t)n >= sizeof path) return WEFT_OK; /* this user has no home directory */
    return add_directory(self, from, path, (size_t)n, err);
}

/* Adds the installation's directories: next to the program, as in a build tree; relative to the program, for a moved
 * installation; and the configured path. */
static weft_status add_installed(weft_plugins *self, weft_error *err) {
    static const char *const relative[] = {"plugins", WEFT_RELATIVE_PLUGIN_DIR};
    char path[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < sizeof relative / sizeof *relative && status == WEFT_OK; i++)
        if (weft_sibling_program(path, relative[i]))
            status = add_directory(self, "The directory of the program", path, strlen(path), err);
    if (status != WEFT_OK) return status;
    return add_directory(self, "The install directory", WEFT_INSTALL_PLUGIN_DIR, strlen(WEFT_INSTALL_PLUGIN_DIR), err);
}

static weft_status add_directories(weft_plugins *self, const char *path, weft_error *err) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    const bool has_data = data != NULL && data[0] == '/';
    weft_status status = add_list(self, "[plugins] path", path, ",:", err);
    if (status == WEFT_OK) status = add_list(self, "WEFT_PLUGIN_PATH", getenv("WEFT_PLUGIN_PATH"), ":", err);
    if (status == WEFT_OK)
        status = add_below(self, "The user's directory", has_data ? data : home,
                           has_data ? "weft/plugins" : ".local/share/weft/plugins", err);
    /* ~/.local, a prefix like /usr/local, independent of this program's own prefix */
    if (status == WEFT_OK) status = add_below(self, "The user's prefix", home, ".local/" WEFT_PLUGIN_DIR, err);
    return status == WEFT_OK ? add_installed(self, err) : status;
}

static char *copy_set(const char *text) {
    return text == NULL || *text == 0 ? NULL : weft_strdup(text);
}

weft_status weft_plugins_create(weft_plugins **out, const weft_plugins_settings *settings, weft_error *err) {
    weft_plugins *self = weft_alloc(1, sizeof *self);
    weft_status status = add_directories(self, settings->path, err);
    self->trust =
        (weft_trust){copy_set(settings->pin), NULL, copy_set(settings->pin_list), settings->trust == WEFT_TRUST_PINNED};
    if (status == WEFT_OK && self->trust.list_path != NULL)
        status = weft_pins_read_list(&self->trust.list, self->trust.list_path, self->trust.pinned, err);
    if (status == WEFT_OK) *out = self;
    else weft_plugins_destroy(self);
    return status;
}

void weft_plugins_destroy(weft_plugins *self) {
    if (self == NULL) return;
    for (size_t i = 0; i < self->n_directories; i++) free(self->directories[i]);
    free(self->trust.pins);
    free(self->trust.list);
    free(self->trust.list_path);
    free(self);
}

const char *weft_plugins_directory(const weft_plugins *self, size_t i) {
    return i < self->n_directories ? self->directories[i] : NULL;
}

/* ---- files ---- */

bool weft_plugins_has(const weft_plugins *self, char *path, size_t size, const char *kind, const char *id) {
    for (size_t i = 0; i < self->n_directories; i++) {
        struct stat stat;
        const int length = snprintf(path, size, "%s/weft-%s-%s.so", self->directories[i], kind, id);
        /* lstat: a broken link counts as a hit, and its load fails with the reason */
        if (length > 0 && (size_t)length < size && lstat(path, &stat) == 0) return true;
    }
    return false;
}

bool weft_plugin_builtin(char *path, size_t size, const char *kind, const char *id) {
    weft_plugins *installed = weft_alloc(1, sizeof *installed);
    const bool has = add_installed(installed, NULL) == WEFT_OK && weft_plugins_has(installed, path, size, kind, id);
    weft_plugins_destroy(installed);
    return has;
}

static int is_plugin_name(const struct dirent *entry) {
    return strncmp(entry->d_name, "weft-", 5) == 0 && weft_words_end(entry->d_name, ".so");
}

/* Splits "weft-<kind>-<id>.so". Returns false for other names. */
static bool split_name(weft_found *out, const char *directory, const char *file) {
    const char *name = file + 5;
    const size_t n = strcspn(name, "-"), all = strlen(name) < 3 ? 0 : strlen(name) - 3;
    if (n >= sizeof out->kind || n + 1 >= all || all - n - 1 >= sizeof out->id) return false;
    (void)snprintf(out->kind, sizeof out->kind, "%.*s", (int)n, name);
    (void)snprintf(out->id, sizeof out->id, "%.*s", (int)(all - n - 1), name + n + 1);
    return (size_t)snprintf(out->path, sizeof out->path, "%s/%s", directory, file) < sizeof out->path;
}

weft_status weft_plugins_list(const weft_plugins *self, weft_found **out, size_t *n, const char *kind,
                              weft_error *err) {
    *out = NULL;
    *n = 0;
    for (size_t i = 0; i < self->n_directories; i++) {
        struct dirent **names = NULL;
        const int found = scandir(self->directories[i], &names, is_plugin_name, alphasort);
        if (found < 0 && errno != ENOENT && errno != ENOTDIR) {
            free(*out);
            *out = NULL;
            *n = 0;
            return weft_error_set(err, WEFT_E_SYSTEM, "The plugin directory %s cannot be read: %s.",
                                  self->directories[i], strerror(errno));
        }
        if (found > 0) *out = weft_realloc(*out, *n + (size_t)found, sizeof **out);
        for (int at = 0; at < found; at++) {
            weft_found *next = *out + *n;
            *n += split_name(next, self->directories[i], names[at]->d_name) &&
                  (kind == NULL || strcmp(next->kind, kind) == 0);
            free(names[at]);
        }
        free(names);
    }
    return WEFT_OK;
}

const char *weft_plugin_built_by(const char *kind, const char *id) {
    if (strcmp(kind, "device") == 0 && strcmp(id, "cuda") == 0)
        return " It is built where the CUDA Toolkit and cuDNN are: `sh configs/packages.sh cuda` installs them, then "
               "build again.";
    if (strcmp(kind, "comm") == 0 && strcmp(id, "nccl") == 0)
        return " It is built where the CUDA Toolkit, cuDNN and NCCL are: `sh configs/packages.sh cuda` installs them, "
               "then build again.";
    return "";
}

static weft_status reject_missing(const weft_plugins *self, const char *kind, const char *id, weft_error *err) {
    char hint[128] = "", file[160] = "", known[512] = "", tried[1400] = "";
    weft_nearest near = {id, "", 0};
    weft_found *all = NULL;
    size_t n = 0;
    (void)weft_plugins_list(self, &all, &n, kind, NULL);
    for (size_t i = 0; i < n; i++) {
        weft_nearest_offer(&near, all[i].id, strlen(all[i].id));
        if (strlen(known) + strlen(all[i].id) + 3 < sizeof known)
            weft_words_append(known, sizeof known, "%s%s", known[0] == 0 ? "" : ", ", all[i].id);
    }
    free(all);
    weft_nearest_print(&near, hint, sizeof hint);
    if (strlen(id) > 3 && weft_words_end(id, ".so"))
        (void)snprintf(file, sizeof file, " A file is written with a slash in it: ./%.90s.", id);
    for (size_t i = 0; i < self->n_directories; i++)
        weft_words_append(tried, sizeof tried, "\n  %s/weft-%s-%s.so", self->directories[i], kind, id);
    return weft_error_set(err, WEFT_E_USER, "there is no %s plugin \"%.100s\"%s%s%s %s%s%s Tried:%s%s", kind, id,
                          hint[0] == 0 ? "." : hint, file, weft_plugin_built_by(kind, id),
                          known[0] == 0 ? "No plugin of this kind was found." : "There are: ", known,
                          known[0] == 0 ? "" : ".", tried, self->n_directories == 0 ? " nothing." : "");
}

weft_status weft_plugins_find(const weft_plugins *self, char *path, size_t size, const char *kind, const char *id,
                              weft_error *err) {
    return weft_plugins_has(self, path, size, kind, id) ? WEFT_OK : reject_missing(self, kind, id, err);
}

/* ---- notes of available files ---- */

void weft_plugin_summarize(const weft_plugins *self, weft_plugin_summary *out, const char *id, const char *path) {
    weft_preflight note;
    weft_error why = WEFT_ERROR_INIT;
    memset(out, 0, sizeof *out);
    (void)snprintf(out->id, sizeof out->id, "%s", id);
    (void)snprintf(out->path, sizeof out->path, "%s", path);
    if (weft_plugin_file_note(&note, path, &self->trust, &why) != WEFT_OK) {
        (void)snprintf(out->reason, sizeof out->reason, "%.1000s", why.text);
        return;
    }
    (void)snprintf(out->launch, sizeof out->launch, "%s", note.launch);
    (void)snprintf(out->launched, sizeof out->launched, "%s", note.launched);
}

weft_status weft_plugins_summarize(const weft_plugins *self, weft_plugin_summary **out, size_t *n, const char *kind,
                                   weft_error *err) {
    weft_found *files = NULL;
    weft_plugin_summary *all = NULL;
    size_t n_files = 0, used = 0;
    const weft_status status = weft_plugins_list(self, &files, &n_files, kind, err);
    if (status != WEFT_OK) return status;
    all = weft_alloc(n_files, sizeof *all);
    for (size_t i = 0; i < n_files; i++) {
        size_t same = 0;
        while (same < used && strcmp(all[same].id, files[i].id) != 0) same++;
        if (same < used || strlen(files[i].id) >= sizeof all->id) continue; /* an earlier directory has it */
        weft_plugin_summarize(self, &all[used++], files[i].id, files[i].path);
    }
    free(files);
    *out = all;
    *n = used;
    return WEFT_OK;
}

/* ---- one plugin ---- */

weft_status weft_plugins_get(weft_plugins *self, const weft_loaded **out, const char *kind, const char *name,
                             weft_error *err) {
    const bool by_path = strchr(name, '/') != NULL;
    char path[PATH_MAX];
    weft_status status = WEFT_OK;
    if (weft_kind_interface(kind) < 0)
        return weft_error_set(err, WEFT_E_USER, "there is no plugin kind \"%.100s\"; there are %s.", kind,
                              weft_kind_list());
    if (!by_path) status = weft_plugins_find(self, path, sizeof path, kind, name, err);
    if (status == WEFT_OK)
        status = weft_plugin_load(out, by_path ? name : path, &self->trust, kind, by_path ? NULL : name, err);
    if (status == WEFT_OK) weft_trust_warnings_log(*out, by_path ? name : path);
    return status;
}

/* ---- a plugin file in a child process, which writes one line of JSON to a pipe ---- */

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
    return weft_plugin_describe_file(out, &plugins->trust, kind, id, path, err);
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
