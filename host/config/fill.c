/* host/config/fill.c: fills key tables from the user's items. */
#include <stdlib.h>

#include "config/path.h"
#include "config/store.h"

const weft_entry *weft_config_entry(const weft_config *self, const char *section, const char *key) {
    for (size_t i = 0; i < self->n_entries; i++) {
        const weft_entry *entry = &self->entries[i];
        if (strcmp(entry->section, section) == 0 && strcmp(entry->row->name, key) == 0) return entry;
    }
    return NULL;
}

static weft_status add_entry(weft_config *self, const weft_entry *given, weft_error *err) {
    weft_entry entry = *given;
    entry.section = strdup(given->section);
    if (entry.section == NULL || !weft_config_grow(&self->entries, self->n_entries, sizeof entry)) {
        free(entry.section);
        return weft_config_no_memory(err);
    }
    self->entries[self->n_entries++] = entry;
    return WEFT_OK;
}

weft_status weft_config_parse(const weft_config *self, weft_entry *entry, weft_error *err) {
    const weft_key *row = entry->row;
    weft_error local = WEFT_ERROR_INIT;
    char subject[600];
    const char *text = entry->item != NULL ? entry->item->value : row->fallback;
    const char *directory = entry->item != NULL ? entry->item->directory : self->here;
    const weft_status status = weft_value_parse(&entry->value, row, text, directory, &local);
    if (status == WEFT_OK) return WEFT_OK;
    if ((row->flags & WEFT_SECRET) != 0) {
        (void)snprintf(subject, sizeof subject, "%s: [%s] %s ", entry->item != NULL ? entry->item->source : self->name,
                       entry->item != NULL ? entry->item->section : entry->section, row->name);
    } else {
        weft_config_subject(self, entry->section, row->name, subject, sizeof subject);
    }
    return weft_error_set(err, status, "%s%s", subject, local.text);
}

/* Fills one row: creates its entry, unless the key was removed. */
static weft_status fill_row(weft_config *self, const char *section, const weft_key *row, weft_error *err) {
    const weft_entry *before = weft_config_entry(self, section, row->name);
    weft_entry entry = {(char *)section, row, {{0}, NULL}, NULL};
    weft_status status = WEFT_OK;
    if (before != NULL && before->row == row) return WEFT_OK;
    if (before != NULL) {
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "[%s] %s is declared by two key tables; the host's keys of a section "
                              "and its plugin's must have names of their own",
                              section, row->name);
    }
    status = weft_config_claim(self, section, row, err);
    if (status != WEFT_OK) return status;
    entry.item = weft_config_item(self, section, row->name);
    if ((row->flags & WEFT_REMOVED) != 0) {
        const char *own = weft_config_own(self, section);
        if (entry.item == NULL && own != NULL) entry.item = weft_config_item(self, own, row->name);
        if (entry.item == NULL) return WEFT_OK;
        return weft_error_set(err, WEFT_E_USER, "%s: [%s] %s was removed: %s", entry.item->source, entry.item->section,
                              row->name, row->help);
    }
    if (entry.item == NULL && row->fallback == NULL) {
        return weft_error_set(err, WEFT_E_USER, "%s: [%s] %s is missing and has no default. %s", self->name, section,
                              row->name, row->help);
    }
    status = weft_config_parse(self, &entry, err);
    if (status != WEFT_OK) return status;
    status = add_entry(self, &entry, err);
    if (status != WEFT_OK) weft_value_free(&entry.value);
    return status;
}

weft_status weft_config_declare(weft_config *self, const char *section, const weft_key *keys, uint64_t n,
                                uint32_t stride, weft_error *err) {
    weft_status status = WEFT_OK;
    for (uint64_t i = 0; i < n && status == WEFT_OK; i++) {
        status = weft_config_claim(self, section, weft_key_row(keys, i, stride), err);
    }
    return status;
}

weft_status weft_config_fill(weft_config *self, void *out, const char *section, const weft_key *keys, uint64_t n,
                             uint32_t stride, weft_error *err) {
    for (uint64_t i = 0; i < n; i++) {
        const weft_status status = fill_row(self, section, weft_key_row(keys, i, stride), err);
        if (status != WEFT_OK) return status;
    }
    for (uint64_t i = 0; i < n; i++) {
        const weft_key *row = weft_key_row(keys, i, stride);
        const weft_entry *entry = weft_config_entry(self, section, row->name);
        if (entry == NULL) continue; /* a removed key has no value */
        memcpy((char *)out + row->offset, entry->value.bytes, sizeof entry->value.bytes);
    }
    return WEFT_OK;
}

bool weft_config_at_default(const weft_config *self, const char *section, const weft_key *key) {
    const weft_entry *entry = weft_config_entry(self, section, key->name);
    weft_value value = {{0}, NULL};
    bool same = false;
    if (entry == NULL || entry->item == NULL || key->fallback == NULL) return entry == NULL || entry->item == NULL;
    same = weft_value_parse(&value, key, key->fallback, self->here, NULL) == WEFT_OK &&
           strcmp(value.text, entry->value.text) == 0;
    weft_value_free(&value);
    return same;
}

/* Returns the row of the key `plugin` of any kind: a string for an id, a path for a value with a slash. */
static const weft_key *plugin_row(bool is_path) {
    static const weft_key rows[] = {
        {(uint32_t)sizeof(weft_key), WEFT_SAME, WEFT_KEY_STR, 0, "plugin", NULL, "", "", "Plugin by id."},
        {(uint32_t)sizeof(weft_key), WEFT_SAME, WEFT_KEY_PATH, 0, "plugin", NULL, "", "", "Plugin by file."}};
    return &rows[is_path];
}

weft_status weft_config_plugin(weft_config *self, const char **out, const char *kind, const char *fallback,
                               weft_error *err) {
    const weft_item *item = weft_config_item(self, kind, "plugin");
    const char *value = item != NULL ? item->value : fallback;
    const weft_entry *before = weft_config_entry(self, kind, "plugin");
    weft_entry entry = {(char *)kind, NULL, {{0}, NULL}, item};
    weft_status status = weft_config_claim(self, kind, plugin_row(false), err);
    if (status != WEFT_OK) return status;
    if (before != NULL) {
        *out = before->value.text;
        return WEFT_OK;
    }
    if (value == NULL) {
        return weft_error_set(err, WEFT_E_USER, "%s: [%s] plugin is missing: name the %s plugin to use", self->name,
                              kind, kind);
    }
    if (*value == '\0') {
        return weft_config_reject(self, kind, "plugin", err, "is empty: give a plugin's id, or the path of its file");
    }
    entry.row = plugin_row(strchr(value, '/') != NULL);
    status = weft_value_parse(&entry.value, entry.row, value, item != NULL ? item->directory : self->here, err);
    if (status == WEFT_OK) status = add_entry(self, &entry, err);
    if (status == WEFT_OK) *out = entry.value.text;
    else weft_value_free(&entry.value);
    return status;
}
