/* host/program/sections.c: see sections.h. */
#include "program/sections.h"

#include "config/foreign.h"
#include "config/number.h"
#include "launch/log_ranks.h"
#include "program/adapters.h"
#include "program/family.h"
#include "program/unselected.h"
#include "program/capabilities.h"

#include <stdlib.h>

/* The sections of the host and those of the parts, before anything in them is missed. */
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

/* The key's list is separated by commas, the registry's by colons, as in WEFT_PLUGIN_PATH. */
static weft_status create_registry(weft_run *run, weft_error *err) {
    weft_plugins_options options = {.pins = run->settings.plugins.pin,
                                    .pin_list = run->settings.plugins.pin_list,
                                    .pinned = run->settings.plugins.trust == WEFT_TRUST_PINNED};
    weft_status status = WEFT_OK;
    char *path = strdup(run->settings.plugins.path);
    if (path == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for [plugins] path");
    for (char *at = path; *at != '\0'; at++)
        if (*at == ',') *at = ':';
    options.path = path;
    status = weft_plugins_create(&run->plugins, &options, err);
    free(path);
    return status;
}

/* Why a plugin that is asked for by name cannot be used, at the line that asks for it. */
static void refuse_plugin(const weft_run *run, int32_t index, const char *name, weft_status status, const char *why,
                          weft_error *err) {
    const char *kind = weft_part_name(index);
    const weft_foreign_id *foreign = weft_foreign_id_find(kind, name);
    const char *family = index == WEFT_PART_MODEL ? run->family : NULL;
    const bool is_read = weft_adapter_of_part(index) >= 0 && run->adapter != NULL;
    if (family != NULL)
        (void)weft_config_reject(run->config, kind, "plugin", err,
                                 "is model_type of the model's config.json and cannot be used: %s", why);
    else if (is_read && status == WEFT_E_USER)
        (void)weft_config_reject(
            run->config, kind, weft_config_has_key(run->config, kind, "use") ? "use" : "from", err,
            "is an adapter of a kind that cannot be used, as its files say: %s. What PEFT has made "
            "can be merged into its base there (merge_and_unload), and Weft takes that model",
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
    const char *member = weft_world_get()->comm; /* of the family that `name` is */
    const bool family = index == WEFT_PART_COMM && member[0] != '\0';
    const weft_status status =
        weft_plugins_get(run->plugins, &run->parts[index].loaded, kind, family ? member : name, &why);
    if (status == WEFT_OK) return WEFT_OK;
    refuse_plugin(run, index, name, status, why.text, err);
    if (err != NULL) err->code = (int32_t)status;
    return status;
}

/* What a part's plugin is where nobody names it; NULL: it must be named. */
static const char *fallback_of(const weft_run *run, int32_t part) {
    return part == WEFT_PART_MODEL ? run->family : weft_part_fallback(part);
}

bool weft_run_wants(const weft_run *run, int32_t part, uint32_t needs) {
    const char *kind = weft_part_name(part);
    const int32_t adapter = weft_adapter_of_part(part);
    if (adapter >= 0) return adapter < run->adapters.n;
    if ((needs & WEFT_NEEDS(part)) != 0 || weft_config_has_section(run->config, kind)) return true;
    return weft_config_plugin_section(run->config, kind, 0) != NULL;
}

/* The keys of the part's plugin, and those of the host that it offers, which may stand in its own section, too. */
static weft_status declare_keys(weft_run *run, int32_t index, weft_error *err) {
    const weft_loaded *loaded = run->parts[index].loaded;
    const weft_plugin *plugin = loaded->plugin;
    const weft_key *row = NULL;
    uint32_t flag = 0;
    char own[100];
    weft_status status = weft_config_choose(run->config, plugin->kind, plugin->id, err);
    (void)snprintf(own, sizeof own, "%s.%s", plugin->kind, plugin->id);
    if (status == WEFT_OK)
        status = weft_config_declare(run->config, plugin->kind, plugin->keys, plugin->n_keys, plugin->key_stride, err);
    if (status == WEFT_OK)
        status = weft_config_declare(run->config, own, plugin->keys, plugin->n_keys, plugin->key_stride, err);
    for (size_t i = 0; status == WEFT_OK && (row = weft_capability_at(index, i, &flag)) != NULL; i++)
        if ((weft_capabilities_of(loaded) & flag) != 0)
            status = weft_config_declare(run->config, own, row, 1, (uint32_t)sizeof *row, err);
    return status;
}

/* One of several adapters has its keys in its own section, and nowhere else. */
static weft_status declare_keys_apart(weft_run *run, int32_t index, weft_error *err) {
    const weft_plugin *plugin = run->parts[index].loaded->plugin;
    char *section = run->parts[index].section;
    for (int32_t i = WEFT_PART_ADAPTER; i < index; i++)
        if (strcmp(weft_run_id(run, i), plugin->id) == 0)
            return weft_config_reject(
                run->config, "adapter", "plugin", err,
                "names %s twice: a model takes an adapter of one plugin once; take one of them out", plugin->id);
    (void)snprintf(section, sizeof run->parts[index].section, "%s.%s", plugin->kind, plugin->id);
    weft_config_choose_apart(run->config, section);
    return weft_config_declare(run->config, section, plugin->keys, plugin->n_keys, plugin->key_stride, err);
}

static weft_status declare_adapter(weft_run *run, int32_t part, weft_error *err) {
    const weft_status status = get_plugin(run, part, run->adapters.names[weft_adapter_of_part(part)], err);
    if (status != WEFT_OK) return status;
    return run->adapters.n > 1 ? declare_keys_apart(run, part, err) : declare_keys(run, part, err);
}

/* Loads the part's plugin and declares its keys. A part without a default whose plugin nobody names cannot be judged
 * further: what is close to a key of the host may be that key. */
static weft_status declare_part(weft_run *run, int32_t index, weft_error *err) {
    const char *kind = weft_part_name(index), *name = NULL;
    const char *fallback = fallback_of(run, index);
    const bool named = fallback != NULL || weft_config_has_key(run->config, kind, "plugin");
    weft_status status = WEFT_OK;
    if (weft_adapter_of_part(index) >= 0) return declare_adapter(run, index, err);
    status = weft_config_plugin(run->config, &name, kind, fallback, named ? err : NULL);
    if (!named) return weft_config_misspelt(run->config, kind, err);
    if (status == WEFT_OK) status = get_plugin(run, index, name, err);
    return status == WEFT_OK ? declare_keys(run, index, err) : status;
}

static bool is_part(const char *section) {
    for (int32_t i = 0; i < WEFT_N_PARTS; i++) {
        if (strcmp(weft_part_name(i), section) == 0) return true;
    }
    return false;
}

/* Files that were written before plugins had sections of their own say `none` of the keys of those that were not
 * chosen. That says nothing. */
static void drop_keys_of_none(weft_run *run, int32_t part) {
    static const struct {
        int32_t part;
        const char *key;
    } said[] = {{WEFT_PART_STRATEGY, "shard"},     {WEFT_PART_STRATEGY, "shard_group"},
                {WEFT_PART_STRATEGY, "root"},      {WEFT_PART_STRATEGY, "reshard_after_forward"},
                {WEFT_PART_STRATEGY, "reduce_at"}, {WEFT_PART_STRATEGY, "device_map"},
                {WEFT_PART_STRATEGY, "schedule"},  {WEFT_PART_STRATEGY, "prefetch"},
                {WEFT_PART_POLICY, "classes"},     {WEFT_PART_POLICY, "size"}};
    const char *kind = weft_part_name(part);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        uint32_t flag = 0;
        const bool is_hosts = weft_capability_find(part, said[i].key, &flag) != NULL;
        if (said[i].part != part) continue;
        if (is_hosts || !weft_config_is_declared(run->config, kind, said[i].key))
            weft_config_pass_over(run->config, kind, said[i].key, "none");
    }
}

/* The keys of a part's section and of its plugin's own. */
static weft_status check_part_keys(weft_run *run, int32_t part, weft_error *err) {
    const weft_loaded *loaded = run->parts[part].loaded;
    const char *kind = weft_part_name(part), *key = NULL;
    char own[100];
    weft_status status = WEFT_OK;
    if (loaded == NULL && part != WEFT_PART_ADAPTER) return WEFT_OK; /* judged before, so far as it could be */
    drop_keys_of_none(run, part);
    key = weft_config_stray(run->config, kind);
    if (key != NULL) return weft_unselected_refuse(run, part, key, err);
    if (loaded == NULL) return WEFT_OK;
    (void)snprintf(own, sizeof own, "%s.%s", kind, loaded->plugin->id);
    status = weft_unselected_refuse_own(run, part, own, weft_capabilities_of(loaded), err);
    return status == WEFT_OK ? weft_config_doubles(run->config, kind, err) : status;
}

/* Every section whose keys are all declared; those of a part whose plugin is not known were judged before. */
static weft_status check_keys(weft_run *run, weft_error *err) {
    weft_settings_section table;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < WEFT_N_PARTS && status == WEFT_OK; i++) status = check_part_keys(run, i, err);
    if (status == WEFT_OK) status = weft_unselected_check_keys(run, err);
    if (status == WEFT_OK) status = weft_unselected_check_adapters(run, err);
    for (size_t i = 0; status == WEFT_OK && weft_settings_table(&table, i); i++) {
        if (!is_part(table.section)) status = weft_config_unknown(run->config, table.section, err);
    }
    return status;
}

/* The id of the part's plugin: the loaded one, or the default of a part that this command leaves out. */
static const char *part_id(const weft_run *run, int32_t part) {
    const weft_loaded *loaded = run->parts[part].loaded;
    return loaded != NULL ? loaded->plugin->id : weft_part_fallback(part);
}

/* name: n bytes, "kind:id". */
static bool names_plugin(const char *name, size_t n, const char *kind, const char *id) {
    const size_t at = strlen(kind);
    if (id == NULL || n != at + 1 + strlen(id)) return false;
    return memcmp(name, kind, at) == 0 && name[at] == ':' && memcmp(name + at + 1, id, strlen(id)) == 0;
}

/* A plugin that waits in a section of its own is one that the file means to use. */
static bool is_used(const weft_run *run, const char *name, size_t n) {
    const char *section = NULL;
    for (int32_t i = 0; i < WEFT_N_PARTS; i++) {
        const char *kind = weft_part_name(i);
        if (names_plugin(name, n, kind, part_id(run, i))) return true;
        for (size_t k = 0; (section = weft_config_plugin_section(run->config, kind, k)) != NULL; k++)
            if (names_plugin(name, n, kind, strchr(section, '.') + 1)) return true;
    }
    return false;
}

/* A pin that holds nothing is a mistake: the plugin that it was meant for runs unpinned. */
static weft_status check_pins_used(const weft_run *run, weft_error *err) {
    const char *rest = *run->settings.plugins.pin == '\0' ? NULL : run->settings.plugins.pin;
    const char *pin = NULL;
    size_t n = 0;
    while (weft_part_next(&rest, ',', &pin, &n)) {
        const size_t name = strcspn(pin, "=");
        if (is_used(run, pin, name)) continue;
        return weft_config_reject(run->config, "plugins", "pin", err,
                                  "pins %.*s, which this run does not use: take the pin out, or correct its name",
                                  (int)(name < 100 ? name : 100), pin);
    }
    return WEFT_OK;
}

/* Where plugins are, and with them how many ranks there are: nothing of a plugin has run yet. */
static weft_status find_ranks(weft_run *run, weft_launch *out, weft_error *err) {
    weft_status status = check_sections(run, err);
    if (status == WEFT_OK) status = weft_settings_declare(run->config, err);
    if (status == WEFT_OK) status = weft_config_unknown(run->config, "plugins", err);
    if (status == WEFT_OK) status = weft_settings_load_plugins(&run->settings.plugins, run->config, err);
    if (status == WEFT_OK) status = create_registry(run, err);
    if (status == WEFT_OK) status = weft_launch_find(out, run->config, run->plugins, err);
    if (status == WEFT_OK) status = weft_settings_load_run(&run->settings.run, run->config, err);
    if (status == WEFT_OK) status = weft_log_ranks_validate(&out->world, run->settings.run.log_ranks, run->config, err);
    if (out->world.launched_by[0] != '\0') weft_world_set(&out->world); /* a rank that fails says which it is */
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
    if (status == WEFT_OK) weft_family_find(run);
    if (status == WEFT_OK) weft_family_find_adapter(run);
    if (status == WEFT_OK) status = weft_adapters_find(run, err);
    for (int32_t i = 0; i < WEFT_N_PARTS && status == WEFT_OK; i++) {
        const bool waits = i >= WEFT_PART_ADAPTER && i < WEFT_N_PARTS - 1; /* until all of its kind are known */
        if (weft_run_wants(run, i, needs)) status = declare_part(run, i, err);
        if (status == WEFT_OK && !waits) status = weft_unselected_declare(run, i, err);
    }
    if (status == WEFT_OK) status = check_keys(run, err);
    if (status != WEFT_OK || (needs & WEFT_NEEDS_NO_PINNED) != 0) return status;
    return check_pins_used(run, err);
}
