/* host/program/unselected.c: see unselected.h. */
#include "program/unselected.h"

#include "program/adapters.h"
#include "program/capabilities.h"

#include <stdlib.h>

/* "strategy.fsdp" */
static void name_section(char *out, size_t size, const char *kind, const char *id) {
    (void)snprintf(out, size, "%s.%s", kind, id);
}

/* ---- idle sections ---- */

/* Keys of the host that the plugin offers are keys of its section, too. */
static weft_status add_capabilities(weft_plugin_description *unselected, int32_t part, weft_error *err) {
    const weft_key *row = NULL;
    uint32_t flag = 0;
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && (row = weft_capability_at(part, i, &flag)) != NULL; i++)
        if ((unselected->flags & flag) != 0) status = weft_plugin_description_add(unselected, row, err);
    return status;
}

static weft_status keep_unselected(weft_run *run, weft_plugin_description *unselected, weft_error *err) {
    weft_plugin_description **grown = realloc(run->unselected, (run->n_unselected + 1) * sizeof *grown);
    if (grown == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the keys of %s", unselected->id);
    run->unselected = grown;
    run->unselected[run->n_unselected++] = unselected;
    return WEFT_OK;
}

static weft_status declare_section(weft_run *run, int32_t part, const char *section, weft_error *err) {
    weft_plugin_description *unselected = NULL;
    weft_error why = WEFT_ERROR_INIT;
    weft_status status =
        weft_plugin_describe(&unselected, run->plugins, weft_part_name(part), strchr(section, '.') + 1, &why);
    if (status != WEFT_OK) {
        (void)weft_config_reject_section(run->config, section, err, "is no plugin's: %s", why.text);
        if (err != NULL) err->code = (int32_t)status;
        return status;
    }
    if (unselected->reason[0] != '\0') {
        weft_log(run->host, WEFT_LOG_WARN, "[%s] is idle, and not judged: the plugin cannot be used here: %s", section,
                 unselected->reason);
        status = weft_config_idle(run->config, section, NULL, 0, 0, err);
        weft_plugin_description_free(unselected);
        return status;
    }
    status = add_capabilities(unselected, part, err);
    if (status == WEFT_OK) status = keep_unselected(run, unselected, err);
    if (status != WEFT_OK) weft_plugin_description_free(unselected);
    else
        status = weft_config_declare(run->config, section, unselected->keys, unselected->n_keys,
                                     (uint32_t)sizeof(weft_key), err);
    return status;
}

/* Whether a plugin of that id is the one of its kind, or one of several. */
static bool is_chosen(const weft_run *run, const char *kind, const char *id) {
    for (int32_t part = 0; part < WEFT_N_PARTS; part++) {
        const char *chosen = weft_run_id(run, part);
        if (chosen != NULL && strcmp(weft_part_name(part), kind) == 0 && strcmp(chosen, id) == 0) return true;
    }
    return false;
}

weft_status weft_unselected_declare(weft_run *run, int32_t part, weft_error *err) {
    const char *kind = weft_part_name(part), *section = NULL;
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK; i++) {
        section = weft_config_plugin_section(run->config, kind, i);
        if (section == NULL) break;
        if (!is_chosen(run, kind, strchr(section, '.') + 1)) status = declare_section(run, part, section, err);
    }
    return status;
}

weft_status weft_unselected_check_keys(const weft_run *run, weft_error *err) {
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < run->n_unselected && status == WEFT_OK; i++) {
        const weft_plugin_description *unselected = run->unselected[i];
        char section[100];
        name_section(section, sizeof section, unselected->kind, unselected->id);
        status = weft_unselected_refuse_own(run, weft_part_of(unselected->kind), section, unselected->flags, err);
    }
    return status;
}

/* The key of the plugin's that the user sets in its section; NULL: none. */
static const char *find_set(const weft_run *run, const weft_plugin_description *unselected, const char *section) {
    for (uint64_t k = 0; k < unselected->n_keys; k++)
        if (weft_config_has_key(run->config, section, unselected->keys[k].name)) return unselected->keys[k].name;
    return NULL;
}

weft_status weft_unselected_check_adapters(const weft_run *run, weft_error *err) {
    if (!weft_adapters_unnamed(run)) return WEFT_OK;
    for (size_t i = 0; i < run->n_unselected; i++) {
        const weft_plugin_description *unselected = run->unselected[i];
        const char *key = NULL;
        char section[100], line[100];
        name_section(section, sizeof section, unselected->kind, unselected->id);
        if (weft_part_of(unselected->kind) == WEFT_PART_ADAPTER) key = find_set(run, unselected, section);
        (void)snprintf(line, sizeof line, "plugin = %s", unselected->id);
        if (key != NULL) return weft_adapters_refuse_idle(run, section, key, line, err);
    }
    return WEFT_OK;
}

/* Keys of the command line are meant for this run, and its plugin of the kind is another. */
static void warn_idle(const weft_run *run, const weft_plugin_description *unselected, const char *section) {
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

weft_status weft_unselected_validate(weft_run *run, weft_error *err) {
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < run->n_unselected && status == WEFT_OK; i++) {
        const weft_plugin_description *unselected = run->unselected[i];
        char section[100];
        name_section(section, sizeof section, unselected->kind, unselected->id);
        status = weft_config_idle(run->config, section, unselected->keys, unselected->n_keys,
                                  (uint32_t)sizeof(weft_key), err);
        if (status == WEFT_OK) warn_idle(run, unselected, section);
    }
    return status;
}

void weft_unselected_forget(weft_run *run) {
    for (size_t i = 0; i < run->n_unselected; i++) weft_plugin_description_free(run->unselected[i]);
    free(run->unselected);
    run->unselected = NULL;
    run->n_unselected = 0;
}

/* ---- keys of others ---- */

static bool has_key(const weft_plugin_description *unselected, int32_t part, const char *key) {
    uint32_t flag = 0;
    if (weft_capability_find(part, key, &flag) != NULL) return (unselected->flags & flag) != 0;
    return weft_plugin_description_key(unselected, key) != NULL;
}

/* Ids with what stands before and behind each. */
typedef struct home_form {
    const char *before, *dot, *behind;
} home_form;

static const home_form as_section = {"[", ".", "]"}, as_line = {"plugin = ", NULL, ""};

/* out: "[strategy.ddp] or [strategy.fsdp]", of the found plugins that have the key; "": none. */
static void list_homes(char *out, size_t size, const weft_run *run, int32_t part, const char *key,
                       const home_form *form) {
    const char *kind = weft_part_name(part);
    weft_noted *all = NULL;
    size_t n = 0, used = 0;
    out[0] = '\0';
    if (weft_plugins_noted(run->plugins, &all, &n, kind, NULL) != WEFT_OK) return;
    for (size_t i = 0; i < n; i++) {
        weft_plugin_description *unselected = NULL;
        if (all[i].reason[0] != '\0' ||
            weft_plugin_describe(&unselected, run->plugins, kind, all[i].id, NULL) != WEFT_OK)
            continue;
        if (has_key(unselected, part, key) && used + strlen(kind) + strlen(all[i].id) + 16 < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s%s%s%s%s", used == 0 ? "" : " or ", form->before,
                                     form->dot == NULL ? "" : kind, form->dot == NULL ? "" : form->dot, all[i].id,
                                     form->behind);
        weft_plugin_description_free(unselected);
    }
    free(all);
}

weft_status weft_unselected_refuse(const weft_run *run, int32_t part, const char *key, weft_error *err) {
    const char *kind = weft_part_name(part);
    const char *id = run->parts[part].loaded == NULL ? "none" : weft_run_id(run, part);
    uint32_t flag = 0;
    const bool hosts = weft_capability_find(part, key, &flag) != NULL;
    char homes[300], lines[300];
    if (part == WEFT_PART_ADAPTER && weft_adapters_unnamed(run)) {
        list_homes(homes, sizeof homes, run, part, key, &as_line);
        if (homes[0] != '\0') return weft_adapters_refuse_idle(run, kind, key, homes, err);
    }
    list_homes(homes, sizeof homes, run, part, key, &as_section);
    list_homes(lines, sizeof lines, run, part, key, &as_line);
    if (hosts)
        return weft_config_reject(run->config, kind, key, err, "is not offered by %s %s: take it out%s%s%s", kind, id,
                                  homes[0] != '\0' ? ", or put it into " : "", homes,
                                  homes[0] != '\0' ? ", where it waits for that plugin" : "");
    if (homes[0] == '\0') return weft_config_unknown(run->config, kind, err);
    if (part == WEFT_PART_ADAPTER && run->adapters.n > 1)
        return weft_config_reject(run->config, kind, key, err,
                                  "is a key of one adapter, and plugin names several: put it into %s", homes);
    return weft_config_reject(run->config, kind, key, err,
                              "is a key of another %s than %s, which is chosen: set %s, or put it into %s, where it "
                              "waits for that plugin",
                              kind, id, lines, homes);
}

weft_status weft_unselected_check_capabilities(const weft_run *run, int32_t part, weft_error *err) {
    const weft_loaded *loaded = run->parts[part].loaded;
    const weft_key *row = NULL;
    uint32_t flag = 0;
    for (size_t i = 0; loaded != NULL && (row = weft_capability_at(part, i, &flag)) != NULL; i++) {
        if ((weft_capabilities_of(loaded) & flag) != 0) continue;
        if (!weft_config_at_default(run->config, weft_part_name(part), row))
            return weft_unselected_refuse(run, part, row->name, err);
    }
    return WEFT_OK;
}

weft_status weft_unselected_refuse_own(const weft_run *run, int32_t part, const char *section, uint32_t flags,
                                       weft_error *err) {
    const char *key = weft_config_stray(run->config, section);
    uint32_t flag = 0;
    if (key == NULL) return WEFT_OK;
    if (weft_capability_find(part, key, &flag) != NULL && (flags & flag) == 0)
        return weft_config_reject(run->config, section, key, err, "is not offered by %s %s: take it out",
                                  weft_part_name(part), strchr(section, '.') + 1);
    return weft_config_unknown(run->config, section, err);
}
