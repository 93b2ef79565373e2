/* host/program/sections.c: see sections.h. */
#include "program/sections.h"

#include "base/alloc.h"
#include "base/text.h"
#include "config/foreign.h"
#include "config/number.h"
#include "launch/world.h"

#include <stdlib.h>
#include <unistd.h>
#include <weft/optimizer.h>
#include <weft/strategy.h>

/* ---- capabilities ---- */

static const struct {
    int32_t part;
    const char *key;
    uint32_t flag;
} capabilities[] = {
    {WEFT_PART_STRATEGY, "reduce", WEFT_CAPABILITY_REDUCE},
    {WEFT_PART_STRATEGY, "reduce_dtype", WEFT_CAPABILITY_REDUCE_DTYPE},
    {WEFT_PART_STRATEGY, "prefetch", WEFT_CAPABILITY_PREFETCH},
    {WEFT_PART_OPTIMIZER, "decay", WEFT_CAPABILITY_DECAY},
};

enum { N_CAPABILITIES = sizeof capabilities / sizeof *capabilities };

const weft_key *weft_capability_at(int32_t part, size_t i, uint32_t *flag) {
    weft_settings_section table;
    for (size_t k = 0; k < N_CAPABILITIES; k++) {
        if (capabilities[k].part != part || i-- > 0) continue;
        *flag = capabilities[k].flag;
        for (size_t t = 0; weft_settings_table(&table, t); t++)
            for (uint64_t row = 0; strcmp(table.section, weft_part_name(part)) == 0 && row < table.n; row++)
                if (strcmp(table.keys[row].name, capabilities[k].key) == 0) return &table.keys[row];
    }
    return NULL;
}

/* Returns the support flag of a host key; 0: it needs no support, or is no key of the host. */
static uint32_t capability_of(int32_t part, const char *key) {
    for (size_t k = 0; k < N_CAPABILITIES; k++)
        if (capabilities[k].part == part && strcmp(capabilities[k].key, key) == 0) return capabilities[k].flag;
    return 0;
}

/* The table of each kind begins with struct_size and flags. */
uint32_t weft_capabilities_of(const weft_loaded *loaded) {
    uint32_t head[2];
    memcpy(head, loaded->plugin->table, sizeof head);
    return head[1];
}

/* Writes "strategy.fsdp" and returns it. */
static const char *name_section(char out[100], const char *kind, const char *id) {
    (void)snprintf(out, 100, "%s.%s", kind, id);
    return out;
}

/* ---- adapters: a list of ids, or one file ---- */

static weft_status check_name(const weft_run *run, const char *name, weft_error *err) {
    const weft_adapter_names *all = &run->adapters;
    if (name[0] == '\0')
        return weft_config_reject(run->config, "adapter", "plugin", err,
                                  "has no id between two commas. Fix: ids separated by one comma");
    if (strpbrk(name, " \t") != NULL)
        return weft_config_reject(run->config, "adapter", "plugin", err,
                                  "has '%s', which is not the name of one adapter. Fix: separate adapters by commas",
                                  name);
    if (strcmp(name, "none") == 0)
        return weft_config_reject(run->config, "adapter", "plugin", err,
                                  "lists none together with other adapters. Fix: remove it, or the others");
    for (int32_t i = 0; i < all->n; i++)
        if (strcmp(all->names[i], name) == 0)
            return weft_config_reject(run->config, "adapter", "plugin", err, "names %s twice. Fix: remove one of them",
                                      name);
    if (all->n < WEFT_MOST_ADAPTERS) return WEFT_OK;
    return weft_config_reject(run->config, "adapter", "plugin", err, "names more than %d adapters", WEFT_MOST_ADAPTERS);
}

/* Sets run->adapters from [adapter] plugin or run->adapter. */
static weft_status find_adapters(weft_run *run, weft_error *err) {
    weft_adapter_names *all = &run->adapters;
    const char *text = NULL;
    const char *fallback = run->adapter != NULL ? run->adapter : weft_part_fallback(WEFT_PART_ADAPTER);
    const char *rest = NULL, *name = NULL;
    size_t n = 0;
    weft_status status = weft_config_plugin(run->config, &text, "adapter", fallback, err);
    if (status != WEFT_OK || strcmp(text, "none") == 0) return status;
    rest = all->text = weft_strdup(text);
    if (strchr(text, '/') != NULL) { /* one file */
        if (strchr(text, ',') != NULL && access(text, F_OK) != 0)
            return weft_config_reject(run->config, "adapter", "plugin", err,
                                      "is no file, and a list of adapters has ids only. Fix: the ids in weft plugins "
                                      "list, with the directories of their files in [plugins] path");
        all->names[all->n++] = all->text;
        return WEFT_OK;
    }
    while (weft_part_next(&rest, ',', &name, &n)) {
        all->text[name - all->text + (ptrdiff_t)n] = '\0';
        status = check_name(run, name, err);
        if (status != WEFT_OK) return status;
        all->names[all->n++] = name;
    }
    return WEFT_OK;
}

void weft_adapters_print(char *out, size_t size, const weft_run *run) {
    out[0] = '\0';
    for (int32_t i = 0; i < run->adapters.n; i++) {
        const char *id = weft_run_id(run, WEFT_PART_ADAPTER + i);
        if (id != NULL) weft_words_append(out, size, "%s%s", out[0] != '\0' ? ", " : "", id);
    }
}

/* True if no adapter is selected and the configuration has neither `plugin = none` nor a directory of an adapter. */
static bool adapters_unnamed(const weft_run *run) {
    return run->adapters.n == 0 && !weft_config_has_key(run->config, "adapter", "plugin") &&
           !weft_config_has_key(run->config, "adapter", "from") && !weft_config_has_key(run->config, "adapter", "use");
}

/* Rejects a key of an unselected adapter. line: the missing line, "plugin = lora". */
static weft_status refuse_adapter_key(const weft_run *run, const char *section, const char *key, const char *line,
                                      weft_error *err) {
    return weft_config_reject(run->config, section, key, err,
                              "is a key of an adapter, and [adapter] names no plugin. Fix: add %s there, or plugin = "
                              "none, after which keys of [adapter.ID] are unused",
                              line);
}

/* ---- sections of unselected plugins ---- */

static weft_status declare_section(weft_run *run, int32_t part, const char *section, weft_error *err) {
    weft_plugin_description *unselected = NULL;
    const weft_key *row = NULL;
    uint32_t flag = 0;
    weft_error why = WEFT_ERROR_INIT;
    weft_status status =
        weft_plugin_describe(&unselected, run->plugins, weft_part_name(part), strchr(section, '.') + 1, &why);
    if (status != WEFT_OK) {
        (void)weft_config_reject(run->config, section, NULL, err, "names no plugin: %s", why.text);
        if (err != NULL) err->code = (int32_t)status;
        return status;
    }
    if (unselected->reason[0] != '\0') {
        weft_log(run->host, WEFT_LOG_WARN, "[%s] is not validated: the plugin cannot be used here: %s", section,
                 unselected->reason);
        status = weft_config_idle(run->config, section, NULL, 0, 0, err);
        weft_plugin_description_free(unselected);
        return status;
    }
    run->unselected = weft_grow(run->unselected, run->n_unselected);
    run->unselected[run->n_unselected++] = unselected;
    for (size_t i = 0; (row = weft_capability_at(part, i, &flag)) != NULL; i++)
        if ((unselected->flags & flag) != 0) weft_plugin_description_add(unselected, row);
    weft_config_declare(run->config, section, unselected->keys, unselected->n_keys, (uint32_t)sizeof(weft_key));
    return WEFT_OK;
}

/* True if the plugin of a section, "strategy.fsdp", is selected; defaults: its default counts if it is not loaded. */
static bool is_selected(const weft_run *run, const char *section, bool defaults) {
    char own[100];
    for (int32_t i = 0; i < WEFT_N_PARTS; i++) {
        const char *id = weft_run_id(run, i);
        if (id == NULL && defaults) id = weft_part_fallback(i);
        if (id != NULL && strcmp(name_section(own, weft_part_name(i), id), section) == 0) return true;
    }
    return false;
}

/* Queries the plugin of each unused section of the part for its keys and declares them. WEFT_E_USER: the plugin does
 * not exist. If the plugin exists but is unusable here, logs a warning and keeps its section unchanged. */
static weft_status declare_unselected(weft_run *run, int32_t part, weft_error *err) {
    const char *kind = weft_part_name(part), *section = NULL;
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && (section = weft_config_plugin_section(run->config, kind, i)) != NULL; i++)
        if (!is_selected(run, section, false)) status = declare_section(run, part, section, err);
    return status;
}

/* Rejects an unknown key, or an unsupported host key, in a plugin's own section. flags: of the plugin's table. */
static weft_status check_own_section(const weft_run *run, int32_t part, const char *section, uint32_t flags,
                                     weft_error *err) {
    const char *key = weft_config_stray(run->config, section);
    if (key == NULL) return WEFT_OK;
    if ((capability_of(part, key) & ~flags) != 0)
        return weft_config_reject(run->config, section, key, err, "is not supported by %s %s. Fix: remove it",
                                  weft_part_name(part), strchr(section, '.') + 1);
    return weft_config_unknown(run->config, section, err);
}

/* Rejects unknown keys in the sections of unselected plugins, and adapter keys if no adapter is selected, because
 * training would silently ignore them. */
static weft_status check_unselected_keys(const weft_run *run, weft_error *err) {
    for (size_t i = 0; i < run->n_unselected; i++) {
        const weft_plugin_description *unselected = run->unselected[i];
        const int32_t part = weft_part_of(unselected->kind);
        char name[100], line[100];
        const char *section = name_section(name, unselected->kind, unselected->id);
        const weft_status status = check_own_section(run, part, section, unselected->flags, err);
        if (status != WEFT_OK) return status;
        (void)snprintf(line, sizeof line, "plugin = %s", unselected->id);
        for (uint64_t k = 0; k < unselected->n_keys && part == WEFT_PART_ADAPTER && adapters_unnamed(run); k++)
            if (weft_config_has_key(run->config, section, unselected->keys[k].name))
                return refuse_adapter_key(run, section, unselected->keys[k].name, line, err);
    }
    return WEFT_OK;
}

/* Warns about keys of an unselected plugin on the command line. */
static void warn_unselected(const weft_run *run, const weft_plugin_description *unselected, const char *section) {
    const char *id = weft_run_id(run, weft_part_of(unselected->kind));
    for (uint64_t k = 0; k < unselected->n_keys && id != NULL; k++) {
        const char *key = unselected->keys[k].name;
        char subject[300];
        if (!weft_config_overrides(run->config, section, key, subject, sizeof subject)) continue;
        weft_log(run->host, WEFT_LOG_WARN,
                 "%sis for %s plugin %s, and [%s] plugin = %s is selected. Fix: %s.plugin=%s, or leave it out", subject,
                 unselected->kind, unselected->id, unselected->kind, id, unselected->kind, unselected->id);
    }
}

/* ---- keys of other plugins ---- */

enum { HOMES_BYTES = 300 };

/* Writes "[strategy.ddp] or [strategy.fsdp]" and "plugin = ddp or plugin = fsdp": the available plugins that have the
 * key. */
static void list_homes(char sections[HOMES_BYTES], char lines[HOMES_BYTES], const weft_run *run, int32_t part,
                       const char *key) {
    const char *kind = weft_part_name(part);
    const uint32_t flag = capability_of(part, key);
    weft_plugin_summary *all = NULL;
    size_t n = 0;
    sections[0] = lines[0] = '\0';
    if (weft_plugins_summarize(run->plugins, &all, &n, kind, NULL) != WEFT_OK) return;
    for (size_t i = 0; i < n; i++) {
        const char *id = all[i].id, *before = sections[0] == '\0' ? "" : " or ";
        const size_t room = HOMES_BYTES - 16 - strlen(kind) - strlen(id);
        weft_plugin_description *it = NULL;
        if (all[i].reason[0] != '\0' || weft_plugin_describe(&it, run->plugins, kind, id, NULL) != WEFT_OK) continue;
        if (strlen(sections) < room && strlen(lines) < room &&
            (flag != 0 ? (it->flags & flag) != 0 : weft_plugin_description_key(it, key) != NULL)) {
            weft_words_append(sections, HOMES_BYTES, "%s[%s.%s]", before, kind, id);
            weft_words_append(lines, HOMES_BYTES, "%splugin = %s", before, id);
        }
        weft_plugin_description_free(it);
    }
    free(all);
}

/* Fails with an error for a key that the part's selected plugin lacks. If another plugin of the kind has the key,
 * the error names that plugin and its section. */
static weft_status reject_key(const weft_run *run, int32_t part, const char *key, weft_error *err) {
    const char *kind = weft_part_name(part);
    const char *id = run->parts[part].loaded == NULL ? "none" : weft_run_id(run, part);
    char homes[HOMES_BYTES], lines[HOMES_BYTES];
    list_homes(homes, lines, run, part, key);
    if (part == WEFT_PART_ADAPTER && adapters_unnamed(run) && homes[0] != '\0')
        return refuse_adapter_key(run, kind, key, lines, err);
    if (capability_of(part, key) != 0)
        return weft_config_reject(run->config, kind, key, err, "is not supported by %s %s. Fix: remove it%s%s%s", kind,
                                  id, homes[0] != '\0' ? ", or move it to " : "", homes,
                                  homes[0] != '\0' ? ", where it is unused until that plugin is selected" : "");
    if (homes[0] == '\0') return weft_config_unknown(run->config, kind, err);
    if (part == WEFT_PART_ADAPTER && run->adapters.n > 1)
        return weft_config_reject(run->config, kind, key, err,
                                  "is a key of one adapter, and plugin names several. Fix: move it to %s", homes);
    return weft_config_reject(run->config, kind, key, err,
                              "is a key of another %s than the selected %s. Fix: set %s, or move it to %s, where it is "
                              "unused until that plugin is selected",
                              kind, id, lines, homes);
}

static weft_status check_capabilities(const weft_run *run, int32_t part, weft_error *err) {
    const weft_loaded *loaded = run->parts[part].loaded;
    const weft_key *row = NULL;
    uint32_t flag = 0;
    for (size_t i = 0; loaded != NULL && (row = weft_capability_at(part, i, &flag)) != NULL; i++)
        if ((weft_capabilities_of(loaded) & flag) == 0 &&
            !weft_config_at_default(run->config, weft_part_name(part), row->name))
            return reject_key(run, part, row->name, err);
    return WEFT_OK;
}

weft_status weft_unselected_validate(weft_run *run, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < WEFT_N_PARTS && status == WEFT_OK; i++) status = check_capabilities(run, i, err);
    for (size_t i = 0; i < run->n_unselected && status == WEFT_OK; i++) {
        const weft_plugin_description *unselected = run->unselected[i];
        char name[100];
        const char *section = name_section(name, unselected->kind, unselected->id);
        status = weft_config_idle(run->config, section, unselected->keys, unselected->n_keys,
                                  (uint32_t)sizeof(weft_key), err);
        if (status == WEFT_OK) warn_unselected(run, unselected, section);
    }
    return status;
}

/* Rejects unknown sections. */
static weft_status check_sections(const weft_run *run, weft_error *err) {
#define COUNT(section, LIST) +1
    const char *names[WEFT_N_PARTS WEFT_SETTINGS_SECTIONS(COUNT)], *kinds[WEFT_N_PARTS];
#undef COUNT
    weft_settings_section table;
    size_t n = 0;
    for (size_t i = 0; weft_settings_table(&table, i); i++) names[n++] = table.section;
    for (int32_t i = 0; i < WEFT_N_PARTS; i++) {
        size_t k = 0;
        while (k < n && strcmp(names[k], weft_part_name(i)) != 0) k++;
        if (k == n) names[n++] = weft_part_name(i);
        kinds[i] = weft_part_name(i);
    }
    return weft_config_sections(run->config, names, n, kinds, WEFT_N_PARTS, err);
}

/* Reports a plugin that cannot be used, at the line that names it. */
static void reject_plugin(const weft_run *run, int32_t index, const char *name, weft_status status, const char *why,
                          weft_error *err) {
    const char *kind = weft_part_name(index);
    const weft_foreign_id *foreign = weft_foreign_id_find(kind, name);
    const char *family = index == WEFT_PART_MODEL ? run->family : NULL;
    const bool is_read = index >= WEFT_PART_ADAPTER && run->adapter != NULL;
    if (family != NULL)
        (void)weft_config_reject(run->config, kind, "plugin", err,
                                 "is model_type of the model's config.json and cannot be used: %s", why);
    else if (is_read && status == WEFT_E_USER)
        (void)weft_config_reject(
            run->config, kind, weft_config_has_key(run->config, kind, "use") ? "use" : "from", err,
            "is an adapter of a kind that cannot be used: %s. Fix: merge it into its base with PEFT "
            "(merge_and_unload) and use that model",
            why);
    else if (foreign != NULL && status == WEFT_E_USER)
        (void)weft_config_reject(run->config, kind, "plugin", err, "is no %s plugin; Weft has it as %s%s%s%s", kind,
                                 foreign->id, foreign->with[0] != '\0' ? " (" : "", foreign->with,
                                 foreign->with[0] != '\0' ? ")" : "");
    else (void)weft_config_reject(run->config, kind, "plugin", err, "cannot be used: %s", why);
}

static weft_status get_plugin(weft_run *run, int32_t index, const char *name, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    const char *kind = weft_part_name(index);
    const char *member = weft_world_get()->comm; /* of the family `name` */
    const bool family = index == WEFT_PART_COMM && member[0] != '\0';
    const weft_status status =
        weft_plugins_get(run->plugins, &run->parts[index].loaded, kind, family ? member : name, &why);
    if (status == WEFT_OK) return WEFT_OK;
    reject_plugin(run, index, name, status, why.text, err);
    if (err != NULL) err->code = (int32_t)status;
    return status;
}

bool weft_run_wants(const weft_run *run, int32_t part, uint32_t needs) {
    const char *kind = weft_part_name(part);
    if (part >= WEFT_PART_ADAPTER) return part - WEFT_PART_ADAPTER < run->adapters.n;
    if ((needs & WEFT_NEEDS(part)) != 0 || weft_config_has_section(run->config, kind)) return true;
    return weft_config_plugin_section(run->config, kind, 0) != NULL;
}

/* Declares the keys of the part's plugin, and in its own section also the host keys that it supports. */
static void declare_keys(weft_run *run, int32_t index) {
    const weft_loaded *loaded = run->parts[index].loaded;
    const weft_plugin *plugin = loaded->plugin;
    const weft_key *row = NULL;
    uint32_t flag = 0;
    char name[100];
    const char *own = name_section(name, plugin->kind, plugin->id);
    weft_config_choose(run->config, plugin->kind, plugin->id);
    weft_config_declare(run->config, plugin->kind, plugin->keys, plugin->n_keys, plugin->key_stride);
    weft_config_declare(run->config, own, plugin->keys, plugin->n_keys, plugin->key_stride);
    for (size_t i = 0; (row = weft_capability_at(index, i, &flag)) != NULL; i++)
        if ((weft_capabilities_of(loaded) & flag) != 0)
            weft_config_declare(run->config, own, row, 1, (uint32_t)sizeof *row);
}

/* Declares the keys of an adapter; one of several adapters has them only in its own section. */
static weft_status declare_adapter(weft_run *run, int32_t index, weft_error *err) {
    char *section = run->parts[index].section;
    const weft_plugin *plugin = NULL;
    const weft_status status = get_plugin(run, index, run->adapters.names[index - WEFT_PART_ADAPTER], err);
    if (status != WEFT_OK) return status;
    if (run->adapters.n == 1) {
        declare_keys(run, index);
        return WEFT_OK;
    }
    plugin = run->parts[index].loaded->plugin;
    (void)name_section(section, plugin->kind, plugin->id);
    weft_config_choose_apart(run->config, section);
    weft_config_declare(run->config, section, plugin->keys, plugin->n_keys, plugin->key_stride);
    return WEFT_OK;
}

/* Loads the part's plugin and declares its keys. Without a named plugin and without a default, only misspelt host keys
 * are reported. */
static weft_status declare_part(weft_run *run, int32_t index, weft_error *err) {
    const char *kind = weft_part_name(index), *name = NULL;
    const char *fallback = index == WEFT_PART_MODEL ? run->family : weft_part_fallback(index);
    const bool named = fallback != NULL || weft_config_has_key(run->config, kind, "plugin");
    weft_status status = WEFT_OK;
    if (index >= WEFT_PART_ADAPTER) return declare_adapter(run, index, err);
    status = weft_config_plugin(run->config, &name, kind, fallback, named ? err : NULL);
    if (!named) return weft_config_misspelt(run->config, kind, err);
    if (status == WEFT_OK) status = get_plugin(run, index, name, err);
    if (status == WEFT_OK) declare_keys(run, index);
    return status;
}

/* Rejects unknown keys of a part's section and of its plugin's own section. */
static weft_status check_part_keys(weft_run *run, int32_t part, weft_error *err) {
    const weft_loaded *loaded = run->parts[part].loaded;
    const char *kind = weft_part_name(part), *key = NULL;
    char own[100];
    weft_status status = WEFT_OK;
    if (loaded == NULL && part != WEFT_PART_ADAPTER) return WEFT_OK; /* declare_part has validated it */
    key = weft_config_stray(run->config, kind);
    if (key != NULL) return reject_key(run, part, key, err);
    if (loaded == NULL) return WEFT_OK;
    status =
        check_own_section(run, part, name_section(own, kind, loaded->plugin->id), weft_capabilities_of(loaded), err);
    return status == WEFT_OK ? weft_config_doubles(run->config, kind, err) : status;
}

/* Rejects unknown keys in all sections. */
static weft_status check_keys(weft_run *run, weft_error *err) {
    weft_settings_section table;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < WEFT_N_PARTS && status == WEFT_OK; i++) status = check_part_keys(run, i, err);
    if (status == WEFT_OK) status = check_unselected_keys(run, err);
    for (size_t i = 0; status == WEFT_OK && weft_settings_table(&table, i); i++) {
        if (weft_part_of(table.section) < 0) status = weft_config_unknown(run->config, table.section, err);
    }
    return status;
}

/* Rejects pins of plugins that are not selected and have no section: the intended plugin would run without a pin. */
static weft_status check_pins_used(const weft_run *run, weft_error *err) {
    const char *rest = *run->settings.plugins.pin == '\0' ? NULL : run->settings.plugins.pin;
    const char *pin = NULL;
    size_t n = 0;
    while (weft_part_next(&rest, ',', &pin, &n)) {
        const size_t name = strcspn(pin, "=");
        char section[100], *colon = NULL;
        (void)snprintf(section, sizeof section, "%.*s", (int)name, pin);
        colon = strchr(section, ':');
        if (colon != NULL) *colon = '.';
        if (is_selected(run, section, true) || weft_config_has_section(run->config, section)) continue;
        return weft_config_reject(run->config, "plugins", "pin", err,
                                  "pins %.*s, which this run does not use. Fix: remove the pin, or correct its name",
                                  (int)(name < 100 ? name : 100), pin);
    }
    return WEFT_OK;
}

/* Creates the plugin registry and finds the number of ranks. No plugin code runs. */
static weft_status find_ranks(weft_run *run, weft_launch *out, weft_error *err) {
    weft_status status = check_sections(run, err);
    if (status == WEFT_OK) weft_settings_declare(run->config);
    if (status == WEFT_OK) status = weft_config_unknown(run->config, "plugins", err);
    if (status == WEFT_OK) status = weft_settings_load_section(&run->settings, "plugins", run->config, err);
    if (status == WEFT_OK) status = weft_plugins_create(&run->plugins, &run->settings.plugins, err);
    if (status == WEFT_OK) status = weft_launch_find(out, run->config, run->plugins, err);
    if (status == WEFT_OK) status = weft_settings_load_section(&run->settings, "run", run->config, err);
    if (status == WEFT_OK) status = weft_log_ranks_validate(&out->world, run->settings.run.log_ranks, run->config, err);
    if (out->world.launched_by[0] != '\0') weft_world_set(&out->world); /* for the rank in error messages */
    return status;
}

weft_status weft_run_ranks(weft_launch *out, const char *path, const char *const *overrides, size_t n_overrides,
                           weft_error *err) {
    weft_run run = {0};
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    status = weft_config_load(&run.config, path, overrides, n_overrides, err);
    if (status == WEFT_OK) status = find_ranks(&run, out, err);
    weft_plugins_destroy(run.plugins);
    weft_config_free(run.config);
    return status;
}

weft_status weft_run_name_comm(weft_run *run, weft_error *err) {
    weft_launch ranks = {0};
    weft_status status = find_ranks(run, &ranks, err);
    if (status == WEFT_OK && (ranks.world.size < 2 || ranks.world.launched_by[0] == '\0'))
        status = weft_error_set(err, WEFT_E_USER, "no launcher started this process as one of several ranks");
    return status == WEFT_OK ? declare_part(run, WEFT_PART_COMM, err) : status;
}

weft_status weft_run_names(weft_run *run, uint32_t needs, weft_error *err) {
    weft_launch ranks = {0};
    weft_status status = find_ranks(run, &ranks, err);
    if (status == WEFT_OK && ranks.must_launch)
        status = weft_error_set(err, WEFT_E_HOST, "%d ranks were to be started before the run was opened",
                                (int)ranks.world.size);
    if (status == WEFT_OK) {
        weft_world_set(&ranks.world);
        if (ranks.why[0] != '\0')
            weft_log(run->host, ranks.world.size > 1 ? WEFT_LOG_DEBUG : WEFT_LOG_INFO, "%s", ranks.why);
    }
    if (status == WEFT_OK && !weft_config_has_key(run->config, "model", "plugin") &&
        weft_settings_load_section(&run->settings, "model", run->config, NULL) == WEFT_OK)
        run->family = weft_family_read(run->settings.model.path); /* an invalid key is reported later */
    if (status == WEFT_OK) weft_family_find_adapter(run);
    if (status == WEFT_OK) status = find_adapters(run, err);
    for (int32_t i = 0; i < WEFT_N_PARTS && status == WEFT_OK; i++) {
        const bool waits = i >= WEFT_PART_ADAPTER && i < WEFT_N_PARTS - 1; /* until all adapters are known */
        if (weft_run_wants(run, i, needs)) status = declare_part(run, i, err);
        if (status == WEFT_OK && !waits) status = declare_unselected(run, i, err);
    }
    if (status == WEFT_OK) status = check_keys(run, err);
    if (status != WEFT_OK || (needs & WEFT_NEEDS_NO_PINNED) != 0) return status;
    return check_pins_used(run, err);
}
