/* host/setup/sections.c: see sections.h. */
#include "setup/sections.h"

#include "config/number.h"
#include "launch/speakers.h"

#include <stdlib.h>

/* The sections of the host and those of the parts, before anything in them is missed. */
static weft_status check_sections(const weft_run *run, weft_error *err) {
#define COUNT(section, LIST) +1
    const char *names[WEFT_N_PARTS WEFT_SETTINGS_SECTIONS(COUNT)];
#undef COUNT
    weft_settings_section table;
    size_t n = 0;
    for (size_t i = 0; weft_settings_table(&table, i); i++) names[n++] = table.section;
    for (int32_t i = 0; i < WEFT_N_PARTS; i++) {
        size_t k = 0;
        while (k < n && strcmp(names[k], weft_part_name(i)) != 0) k++;
        if (k == n) names[n++] = weft_part_name(i);
    }
    return weft_config_sections(run->config, names, n, err);
}

/* The key's list is separated by commas, the registry's by colons, as in WEFT_PLUGIN_PATH. */
static weft_status create_registry(weft_run *run, weft_error *err) {
    weft_plugins_options options = {.pins = run->settings.plugins.pin};
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

/* A plugin that cannot be used is the fault of the line that asks for it. */
static weft_status get_plugin(weft_run *run, int32_t index, const char *name, weft_error *err) {
    weft_error why = WEFT_ERROR_INIT;
    const char *kind = weft_part_name(index);
    const char *member = weft_world_get()->comm; /* of the family that `name` is */
    const bool family = index == WEFT_PART_COMM && member[0] != '\0';
    const weft_status status =
        weft_plugins_get(run->plugins, &run->parts[index].loaded, kind, family ? member : name, &why);
    if (status == WEFT_OK) return WEFT_OK;
    (void)weft_config_reject(run->config, kind, "plugin", err, "cannot be used: %s", why.text);
    if (err != NULL) err->code = (int32_t)status;
    return status;
}

bool weft_run_wants(const weft_run *run, int32_t part, uint32_t needs) {
    return (needs & WEFT_NEEDS(part)) != 0 || weft_config_has_section(run->config, weft_part_name(part));
}

/* Loads the part's plugin and declares its keys. A part without a default whose plugin nobody names cannot be judged
 * further: what is close to a key of the host may be that key. */
static weft_status declare_part(weft_run *run, int32_t index, weft_error *err) {
    const char *kind = weft_part_name(index), *fallback = weft_part_fallback(index), *name = NULL;
    const bool named = fallback != NULL || weft_config_has_key(run->config, kind, "plugin");
    const weft_plugin *plugin = NULL;
    weft_status status = weft_config_plugin(run->config, &name, kind, fallback, named ? err : NULL);
    if (!named) return weft_config_misspelt(run->config, kind, err);
    if (status == WEFT_OK) status = get_plugin(run, index, name, err);
    if (status != WEFT_OK) return status;
    plugin = run->parts[index].loaded->plugin;
    return weft_config_declare(run->config, kind, plugin->keys, plugin->n_keys, plugin->key_stride, err);
}

static bool is_part(const char *section) {
    for (int32_t i = 0; i < WEFT_N_PARTS; i++) {
        if (strcmp(weft_part_name(i), section) == 0) return true;
    }
    return false;
}

/* Every section whose keys are all declared; those of a part whose plugin is not known were judged before. */
static weft_status check_keys(const weft_run *run, weft_error *err) {
    weft_settings_section table;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < WEFT_N_PARTS && status == WEFT_OK; i++) {
        if (run->parts[i].loaded != NULL) status = weft_config_unknown(run->config, weft_part_name(i), err);
    }
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
static bool is_used(const weft_run *run, const char *name, size_t n) {
    for (int32_t i = 0; i < WEFT_N_PARTS; i++) {
        const char *kind = weft_part_name(i), *id = part_id(run, i);
        const size_t at = strlen(kind);
        if (id == NULL || n != at + 1 + strlen(id)) continue;
        if (memcmp(name, kind, at) == 0 && name[at] == ':' && memcmp(name + at + 1, id, strlen(id)) == 0) return true;
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
    if (status == WEFT_OK) status = weft_speakers_judge(&out->world, run->settings.run.log_ranks, run->config, err);
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

weft_status weft_run_names(weft_run *run, uint32_t needs, weft_error *err) {
    weft_launch ranks = {0};
    weft_status status = find_ranks(run, &ranks, err);
    if (status == WEFT_OK && ranks.must_launch)
        status = weft_error_set(err, WEFT_E_HOST, "%d ranks were to be started before the run was opened",
                                (int)ranks.world.size);
    if (status == WEFT_OK) {
        weft_world_set(&ranks.world);
        if (ranks.why[0] != '\0') weft_log(run->host, WEFT_LOG_INFO, "%s", ranks.why);
    }
    for (int32_t i = 0; i < WEFT_N_PARTS && status == WEFT_OK; i++) {
        if (weft_run_wants(run, i, needs)) status = declare_part(run, i, err);
    }
    if (status == WEFT_OK) status = check_keys(run, err);
    if (status != WEFT_OK || (needs & WEFT_NEEDS_NO_PINNED) != 0) return status;
    return check_pins_used(run, err);
}
