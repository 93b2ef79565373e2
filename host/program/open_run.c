/* host/program/open_run.c: opens and closes a run and its tokenizer, and implements the run's plugin lookup for plugins
 * that wrap other plugins (WEFT_HOST_PLUGINS).
 *
 * The available plugins and their keys depend on the run. Each run therefore has its own host struct, which
 * otherwise equals the process's. */
#include "base/alloc.h"
#include "base/text.h"
#include "config/number.h"
#include "launch/find.h"
#include "launch/watchdog.h"
#include "launch/world.h"
#include "plugin/enter.h"
#include "plugin/services.h"
#include "program/run.h"
#include "program/sections.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The configuration of a wrapped plugin. */
typedef struct lent_keys {
    struct lent_keys *next;
    uint64_t bytes[]; /* aligned for all member types */
} lent_keys;

typedef struct weft_plugin_lookup {
    weft_host host; /* first: plugins have a pointer to it */
    weft_run *run;  /* NULL: closed */
    lent_keys *keys;
    struct weft_plugin_lookup *next; /* keeps it reachable until the process ends */
} weft_plugin_lookup;

static weft_plugin_lookup *all_lookups;

/* A family of communicators stands for the one that started this process. */
static weft_status find(const weft_loaded **out, weft_run *run, const char *kind, const char *id, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    const char *member = weft_world_get()->wrapped;
    const size_t n = strlen(id);
    const bool is_family = strcmp(kind, "comm") == 0 && strncmp(member, id, n) == 0 && member[n] == '-';
    if (weft_kind_interface(kind) < 0)
        return weft_error_set(err, WEFT_E_PLUGIN, "requests a %.40s: there is no such kind", kind);
    status = weft_plugins_get(run->plugins, out, kind, is_family ? member : id, &why);
    if (status != WEFT_OK) return weft_error_set(err, status, "the %s %s cannot be wrapped: %s", kind, id, why.text);
    if (*out == run->parts[weft_part_of(kind)].loaded)
        return weft_error_set(err, WEFT_E_USER, "the %s %s would wrap itself: name another", kind, id);
    return WEFT_OK;
}

/* Calls the plugin's check of its filled keys. */
static weft_status validate(const weft_run *run, const weft_loaded *loaded, const void *keys, const char *section,
                            weft_error *err) {
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    if (loaded->plugin->validate == NULL) return WEFT_OK;
    weft_plugin_call_begin(&call, loaded, "validate");
    status = weft_plugin_call_end(&call, loaded->plugin->validate(keys, err), err);
    if (status != WEFT_OK) weft_config_locate_section(run->config, section, err);
    return status;
}

static weft_status lend(const weft_host *host, const char *kind, const char *id, const struct weft_plugin **plugin,
                        const void **config, weft_error *err) {
    weft_plugin_lookup *self = (weft_plugin_lookup *)(uintptr_t)host;
    const weft_loaded *loaded = NULL;
    lent_keys *keys = NULL;
    weft_status status = WEFT_OK;
    char section[100];
    *plugin = NULL;
    *config = NULL;
    if (self->run == NULL) return weft_error_set(err, WEFT_E_PLUGIN, "requests a plugin of a closed run");
    status = find(&loaded, self->run, kind, id, err);
    if (status != WEFT_OK) return status;
    keys = weft_alloc(1, sizeof *keys + loaded->plugin->config_size + sizeof(uint64_t));
    keys->next = self->keys;
    self->keys = keys;
    (void)snprintf(section, sizeof section, "%s.%s", loaded->plugin->kind, loaded->plugin->id);
    status = weft_config_fill_idle(self->run->config, keys->bytes, section, loaded->plugin->keys,
                                   loaded->plugin->n_keys, loaded->plugin->key_stride, err);
    if (status == WEFT_OK) status = validate(self->run, loaded, keys->bytes, section, err);
    *config = keys->bytes;
    if (status == WEFT_OK) *plugin = loaded->plugin;
    return status;
}

static const void *extension(const weft_host *host, const char *id) {
    static const weft_host_plugins table = {(uint32_t)sizeof table, 0, lend};
    if (strcmp(id, WEFT_HOST_PLUGINS) == 0) return &table;
    return weft_services()->extension(host, id);
}

/* Creates a run with its own host and loads its configuration. The caller closes *out even after a failure. */
static weft_status begin_run(weft_run **out, const char *path, const char *const *overrides, size_t n_overrides,
                             weft_error *err) {
    weft_run *run = weft_alloc(1, sizeof *run);
    weft_plugin_lookup *self = weft_alloc(1, sizeof *self);
    self->host = *weft_services();
    self->host.extension = extension;
    self->run = run;
    self->next = all_lookups;
    all_lookups = self;
    run->plugin_lookup = self;
    run->host = &self->host;
    *out = run;
    return weft_config_load(&run->config, path, overrides, n_overrides, err);
}

static const struct {
    const char *kind, *fallback;
} kinds[WEFT_PART_ADAPTER + 1] = {
    [WEFT_PART_MODEL] = {"model", NULL},           [WEFT_PART_POLICY] = {"policy", "block"},
    [WEFT_PART_STRATEGY] = {"strategy", "single"}, [WEFT_PART_OPTIMIZER] = {"optimizer", "adamw"},
    [WEFT_PART_DATA] = {"data", "text"},           [WEFT_PART_TOKENIZER] = {"tokenizer", "bpe"},
    [WEFT_PART_DEVICE] = {"device", "cpu"},        [WEFT_PART_COMM] = {"comm", "self"},
    [WEFT_PART_ADAPTER] = {"adapter", "none"},
};

/* All parts from WEFT_PART_ADAPTER on are adapters. */
static int32_t kind_of(int32_t part) {
    return part > WEFT_PART_ADAPTER ? WEFT_PART_ADAPTER : part;
}

const char *weft_part_name(int32_t part) {
    return kinds[kind_of(part)].kind;
}

const char *weft_run_section(const weft_run *run, int32_t part) {
    return run->parts[part].section[0] != '\0' ? run->parts[part].section : weft_part_name(part);
}

int32_t weft_part_of(const char *kind) {
    for (int32_t part = 0; part <= WEFT_PART_ADAPTER; part++)
        if (strcmp(kinds[part].kind, kind) == 0) return part;
    return -1;
}

const char *weft_part_fallback(int32_t part) {
    const weft_world *world = weft_world_get();
    if (part == WEFT_PART_COMM && world->size > 1 && !world->is_planned) return WEFT_RANKS_FAMILY;
    return kinds[kind_of(part)].fallback;
}

const char *weft_run_id(const weft_run *run, int32_t part) {
    return run->parts[part].loaded != NULL ? run->parts[part].loaded->plugin->id : NULL;
}

weft_status weft_run_located(const weft_run *run, int32_t part, weft_status status, weft_error *err) {
    if (status != WEFT_OK) (void)weft_config_locate(run->config, weft_run_section(run, part), err);
    return status;
}

static weft_status open_part(weft_run *run, int32_t index, weft_error *err) {
    const char *section = weft_run_section(run, index);
    const weft_plugin *plugin = NULL;
    weft_part *part = &run->parts[index];
    weft_status status = part->loaded == NULL ? weft_family_missing(run, err) : WEFT_OK;
    if (status != WEFT_OK) return status;
    plugin = part->loaded->plugin;
    part->config = weft_alloc(1, (size_t)plugin->config_size + 1);
    status =
        weft_config_fill(run->config, part->config, section, plugin->keys, plugin->n_keys, plugin->key_stride, err);
    if (status == WEFT_E_PLUGIN) (void)weft_error_prefix(err, "%s: ", part->loaded->path);
    return status == WEFT_OK ? validate(run, part->loaded, part->config, section, err) : status;
}

/* Replaces [train] trainable = auto by its value. It includes the modules trained with a continued adapter. */
static void choose_trained(weft_run *run) {
    const char *from = run->settings.adapter_from;
    char *whole = NULL;
    if (strcmp(run->settings.train.trainable, "auto") != 0) return;
    run->settings.train.trainable = "all";
    if (run->parts[WEFT_PART_ADAPTER].loaded == NULL) return;
    run->settings.train.trainable = run->settings.tokenizer.add[0] != '\0' ? "adapter, vocabulary" : "adapter";
    whole = from[0] != '\0' ? weft_family_full_modules(from) : NULL;
    if (whole == NULL) return;
    run->trained = weft_text_of("%s, %s", run->settings.train.trainable, whole);
    run->settings.train.trainable = run->trained;
    free(whole);
}

/* Fails if [adapter] names a directory and no adapter is loaded. `plugin = none` discards the directory. */
static weft_status check_adapter(weft_run *run, weft_error *err) {
    const char *key = run->settings.adapter.use[0] != '\0' ? "use" : "from";
    char config[WEFT_PATH_BYTES];
    weft_error why = WEFT_ERROR_INIT;
    if (run->adapters.n == 0 && weft_config_has_key(run->config, "adapter", "plugin"))
        run->settings.adapter_from[0] = '\0';
    if (run->settings.adapter_from[0] == '\0' || run->parts[WEFT_PART_ADAPTER].loaded != NULL) return WEFT_OK;
    if (access(run->settings.adapter_from, F_OK) != 0)
        return weft_config_reject(run->config, "adapter", key, err, "(%s): %s", run->settings.adapter_from,
                                  strerror(errno));
    if (weft_path_join(config, run->settings.adapter_from, "adapter_config.json", NULL) == WEFT_OK &&
        access(config, F_OK) != 0)
        return weft_config_reject(run->config, "adapter", key, err,
                                  "names %s, which has no adapter_config.json: a run writes its adapter to its "
                                  "directory's model/",
                                  run->settings.adapter_from);
    if (weft_family_check(run->settings.adapter_from, "adapter_config.json", &why) != WEFT_OK)
        return weft_config_reject(run->config, "adapter", key, err, "names an adapter that cannot be read: %s",
                                  why.text);
    return weft_config_reject(run->config, "adapter", key, err,
                              "names %s, and its adapter_config.json has no known peft_type. Fix: name the plugin, as "
                              "plugin = lora, or correct the directory",
                              run->settings.adapter_from);
}

weft_status weft_run_open(weft_run **out, const char *path, const char *const *overrides, size_t n_overrides,
                          uint32_t needs, weft_error *err) {
    weft_run *run = NULL;
    weft_status status = begin_run(&run, path, overrides, n_overrides, err);
    if (status == WEFT_OK) status = weft_run_names(run, needs, err);
    if (status == WEFT_OK) status = weft_settings_load(&run->settings, run->config, err);
    if (status == WEFT_OK) {
        weft_slow_call_begin(run->settings.plugins.call_seconds);
        run->is_watched = true;
    }
    if (status == WEFT_OK) status = check_adapter(run, err);
    if (status == WEFT_OK) choose_trained(run);
    for (int32_t i = 0; i < WEFT_N_PARTS && status == WEFT_OK; i++)
        if (weft_run_wants(run, i, needs)) status = open_part(run, i, err);
    if (status == WEFT_OK) status = weft_unselected_validate(run, err);
    if (status == WEFT_OK) status = weft_config_finish(run->config, err);
    if (status == WEFT_OK) status = weft_tokens_settle(run, err);
    if (status == WEFT_OK) *out = run;
    else weft_run_close(run);
    return status;
}

weft_status weft_run_open_comm(weft_run **out, const char *path, const char *const *overrides, size_t n_overrides,
                               weft_error *err) {
    weft_run *run = NULL;
    weft_status status = begin_run(&run, path, overrides, n_overrides, err);
    if (status == WEFT_OK) status = weft_run_name_comm(run, err);
    if (status == WEFT_OK) status = open_part(run, WEFT_PART_COMM, err);
    if (status == WEFT_OK) *out = run;
    else weft_run_close(run);
    return status;
}

void weft_run_close(weft_run *run) {
    if (run == NULL) return;
    for (int i = 0; i < WEFT_N_PARTS; i++) free(run->parts[i].config);
    for (lent_keys *keys = run->plugin_lookup->keys, *next = NULL; keys != NULL; keys = next) {
        next = keys->next;
        free(keys);
    }
    run->plugin_lookup->keys = NULL;
    run->plugin_lookup->run = NULL; /* the host struct remains, because plugins keep a pointer to it */
    weft_plugins_destroy(run->plugins);
    weft_config_free(run->config);
    for (size_t i = 0; i < run->n_unselected; i++) weft_plugin_description_free(run->unselected[i]);
    free(run->unselected);
    free(run->adapters.text);
    free(run->adapter);
    free(run->trained);
    free(run->family);
    if (run->is_watched) weft_slow_call_end();
    free(run);
}

/* ---- paths in the keys of a plugin ---- */

/* Returns the length of a listed path without a weight, as ":0.5". */
static size_t path_length(const char *name, size_t n) {
    const char *colon = memrchr(name, ':', n);
    char *end = NULL;
    if (colon == NULL || colon + 1 == name + n) return n;
    (void)strtod(colon + 1, &end);
    return end == name + n ? (size_t)(colon - name) : n;
}

weft_status weft_part_each_path(const weft_part *part, weft_path_visit *visit, void *context, weft_error *err) {
    const weft_plugin *plugin = part->loaded == NULL ? NULL : part->loaded->plugin;
    weft_status status = WEFT_OK;
    for (uint64_t k = 0; plugin != NULL && k < plugin->n_keys && status == WEFT_OK; k++) {
        const weft_key *key = (const weft_key *)(const void *)((const char *)plugin->keys + k * plugin->key_stride);
        const bool is_list = (key->flags & WEFT_PATHS) != 0;
        const char *value = NULL, *one = NULL;
        size_t n = 0;
        if ((key->type != WEFT_KEY_PATH && !is_list) || (key->flags & WEFT_REMOVED) != 0) continue;
        memcpy(&value, (const char *)part->config + key->offset, sizeof value);
        if (!is_list && value != NULL && value[0] == '/') status = visit(context, key->name, value, err);
        if (!is_list || *value == '\0') continue;
        while (status == WEFT_OK && weft_part_next(&value, ',', &one, &n)) {
            char *path = weft_text_of("%.*s", (int)path_length(one, n), one);
            status = visit(context, key->name, path, err);
            free(path);
        }
    }
    return status;
}

/* ---- the tokenizer ---- */

static weft_status set_text_flags(weft_text *text, const weft_run *run, weft_error *err) {
    const weft_tokenizer_settings *keys = &run->settings.tokenizer;
    const struct {
        const char *key, *name;
        int64_t choice;
        int32_t automatic, id;
        uint32_t flag;
    } ends[] = {{"bos", "a BOS", keys->bos, text->info.auto_bos, text->info.bos, WEFT_ENCODE_BOS},
                {"eos", "an EOS", keys->eos, text->info.auto_eos, text->info.eos, WEFT_ENCODE_EOS}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (ends[i].choice == WEFT_CHOICE_NO || (ends[i].choice == WEFT_CHOICE_AUTO && ends[i].automatic == 0))
            continue;
        if (ends[i].id < 0)
            return weft_config_reject(run->config, "tokenizer", ends[i].key, err,
                                      "needs %s, which the tokenizer in %s does not have: set %s = no", ends[i].name,
                                      text->directory, ends[i].key);
        text->document_flags |= ends[i].flag;
    }
    text->prompt_flags = text->document_flags & WEFT_ENCODE_BOS;
    return WEFT_OK;
}

weft_status weft_run_check_directory(const weft_run *run, const char *section, const char *path, weft_error *err) {
    struct stat about;
    if (*path == '\0') return WEFT_OK;
    if (stat(path, &about) != 0)
        return weft_config_reject(run->config, section, "path", err, "(%s): %s", path, strerror(errno));
    if (S_ISDIR(about.st_mode)) return WEFT_OK;
    return weft_config_reject(run->config, section, "path", err,
                              "is no directory: set it to the directory of the files");
}

weft_status weft_text_open(weft_text *out, const weft_run *run, weft_error *err) {
    const weft_part *part = &run->parts[WEFT_PART_TOKENIZER];
    weft_text text = {0};
    weft_plugin_call call;
    weft_status status = WEFT_OK;
    text.plugin = weft_loaded_table(part->loaded, tokenizer);
    text.directory = run->settings.tokenizer.path[0] != '\0' ? run->settings.tokenizer.path : run->settings.model.path;
    status = weft_run_check_directory(run, "model", run->settings.model.path, err);
    if (status == WEFT_OK) status = weft_run_check_directory(run, "tokenizer", run->settings.tokenizer.path, err);
    if (status != WEFT_OK) return status;
    weft_plugin_call_begin(&call, part->loaded, "create");
    status = text.plugin->create(&text.tokenizer, run->host, part->config, text.directory, err);
    status = weft_run_located(run, WEFT_PART_TOKENIZER, weft_plugin_call_made(&call, status, text.tokenizer, err), err);
    if (status == WEFT_OK && weft_tokens_wanted(run)) status = weft_tokens_add(&text, run, err);
    if (status == WEFT_OK) {
        text.info.struct_size = (uint32_t)sizeof text.info;
        WEFT_PLUGIN_NOTIFY(text.plugin, info, text.tokenizer, &text.info);
        status = set_text_flags(&text, run, err);
    }
    if (status == WEFT_OK) *out = text;
    else weft_text_close(&text);
    return status;
}

const void *weft_text_extension(const weft_text *text, const char *id) {
    const void *table = NULL;
    if (text->plugin->extension != NULL) WEFT_PLUGIN_QUERY(table, text->plugin, extension, text->tokenizer, id);
    return table;
}

void weft_text_close(weft_text *text) {
    if (text->plugin != NULL && text->tokenizer != NULL) WEFT_PLUGIN_NOTIFY(text->plugin, destroy, text->tokenizer);
    free(text->end_token);
    memset(text, 0, sizeof *text);
}
