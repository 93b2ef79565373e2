/* host/config/explain.c: writes a filled configuration as INI, and lists its values with their sources. */
#include "base/alloc.h"
#include "base/file.h"
#include "config/ini.h"
#include "config/store.h"

#include <jansson.h>
#include <stdlib.h>

/* Error messages about a value, prefixed with its source. */

static bool is_secret(const weft_key *row) {
    return row != NULL && (row->flags & WEFT_SECRET) != 0;
}

void weft_config_subject(const weft_config *self, const char *section, const char *key, const weft_key *row, char *out,
                         size_t size) {
    const weft_entry *entry = weft_config_entry(self, section, key);
    const weft_item *item = weft_config_item(self, section, key);
    const bool secret = is_secret(entry != NULL ? entry->row : row);
    const char *value = item != NULL ? item->value : entry != NULL ? entry->value.text : NULL;
    const char *source = item != NULL ? item->source : self->name;
    if (item != NULL) section = item->section; /* its plugin's own section, if it is set there */
    if (value == NULL || secret) {
        (void)snprintf(out, size, "%s: [%s] %s ", source, section, key);
    } else {
        (void)snprintf(out, size, "%s: [%s] %s = %.80s%s%s ", source, section, key, *value == '\0' ? "\"\"" : value,
                       strlen(value) > 80 ? "..." : "", item == NULL ? " (its default)" : "");
    }
}

bool weft_config_overrides(const weft_config *self, const char *section, const char *key, char *subject, size_t size) {
    const weft_item *item = weft_config_item(self, section, key);
    if (item == NULL || item->directory != self->here) return false;
    weft_config_subject(self, section, key, NULL, subject, size);
    return true;
}

/* Returns the section's line if all its values are from the file, the command line if all are overrides, else the file.
 * The plugin's own section counts as part of it. */
static const char *section_source(const weft_config *self, const char *section) {
    const char *source = self->name, *item_source = NULL;
    size_t in_file = 0, n = 0;
    for (size_t i = 0; i < self->n_mentions; i++)
        if (strcmp(self->mentions[i].section, section) == 0) source = self->mentions[i].source;
    for (size_t i = 0; i < self->n_items; i++) {
        const char *own = weft_config_own_section(self, section, self->items[i].key);
        const bool is_own = own != NULL && strcmp(self->items[i].section, own) == 0;
        if (!is_own && strcmp(self->items[i].section, section) != 0) continue;
        n++;
        if (self->items[i].directory == self->home) in_file++;
        else item_source = self->items[i].source;
    }
    if (n > in_file) return in_file == 0 ? item_source : self->name;
    return source;
}

weft_status weft_config_reject(const weft_config *self, const char *section, const char *key, weft_error *err,
                               const char *format, ...) {
    weft_error local = WEFT_ERROR_INIT;
    va_list args;
    size_t n = 0;
    if (err == NULL) err = &local;
    if (key != NULL) weft_config_subject(self, section, key, NULL, err->text, sizeof err->text);
    else (void)snprintf(err->text, sizeof err->text, "%s: [%s] ", section_source(self, section), section);
    n = strlen(err->text);
    va_start(args, format);
    (void)vsnprintf(err->text + n, sizeof err->text - n, format, args);
    va_end(args);
    err->code = WEFT_E_USER;
    return WEFT_E_USER;
}

/* Returns the section's key that the text begins with, or NULL. */
static const weft_entry *entry_named_in(const weft_config *self, const char *section, const char *text) {
    const size_t n = strcspn(text, " ");
    for (size_t i = 0; i < self->n_entries; i++) {
        const weft_entry *entry = &self->entries[i];
        if (strcmp(entry->section, section) != 0 || strlen(entry->row->name) != n) continue;
        if (memcmp(entry->row->name, text, n) == 0) return entry;
    }
    return NULL;
}

bool weft_config_locate(const weft_config *self, const char *section, weft_error *err) {
    char head[80];
    const weft_entry *entry = NULL;
    size_t n = 0;
    if (err == NULL) return false;
    n = (size_t)snprintf(head, sizeof head, "[%.60s] ", section);
    if (strncmp(err->text, head, n) != 0) n = 0; /* then the text may begin with the key itself */
    entry = entry_named_in(self, section, err->text + n);
    if (entry == NULL) return false;
    if (entry->item != NULL) (void)snprintf(head, sizeof head, "[%.60s] ", entry->item->section);
    (void)weft_error_prefix(err, "%s: %s%s", entry->item != NULL ? entry->item->source : self->name,
                            entry->item != NULL ? "" : "by default, ", n != 0 ? "" : head);
    return true;
}

void weft_config_locate_section(const weft_config *self, const char *section, weft_error *err) {
    if (weft_config_locate(self, section, err) || err == NULL) return;
    (void)weft_error_prefix(err, "%s: [%s] ", section_source(self, section), section);
}

/* Lists the entries: sections in the order of their first fill, `plugin` first in each, without unset keys that the
 * section's plugin does not offer. The caller frees the list. */
static const weft_entry **list_entries(const weft_config *self, size_t *n) {
    const weft_entry **out = weft_alloc(self->n_entries + 1, sizeof *out);
    *n = 0;
    for (size_t i = 0; i < self->n_entries; i++) {
        const char *section = self->entries[i].section;
        const weft_entry *plugin = weft_config_entry(self, section, "plugin");
        bool first = true;
        for (size_t k = 0; k < i; k++) first = first && strcmp(self->entries[k].section, section) != 0;
        if (!first) continue;
        if (plugin != NULL) out[(*n)++] = plugin;
        for (size_t k = i; k < self->n_entries; k++) {
            const weft_entry *entry = &self->entries[k];
            if (entry != plugin && strcmp(entry->section, section) == 0 &&
                (entry->item != NULL || !weft_config_is_moot(self, section, entry->row)))
                out[(*n)++] = entry;
        }
    }
    return out;
}

/* ---- the resolved file ---- */

/* Begins a section, unless it is the last one. */
static void begin_section(FILE *file, const char **last, const char *section) {
    if (*last != NULL && strcmp(*last, section) == 0) return;
    (void)fprintf(file, "%s[%s]\n", *last != NULL ? "\n" : "", section);
    *last = section;
}

/* A value is written to the section where the user set it, and a plugin's default to the plugin's own section. So the
 * file can change its plugin in one line wherever the user's file could. */
static const char *home_of(const weft_config *self, const weft_entry *entry) {
    const char *own = weft_config_own_section(self, entry->section, entry->row->name);
    if (entry->item != NULL) return entry->item->section;
    return own != NULL && (entry->row->flags & WEFT_HOST_OFFERED) == 0 ? own : entry->section;
}

/* An idle value is written as the user wrote it, except for paths, which would be relative to another file. */
static void write_idle(const weft_config *self, FILE *file, const char **last) {
    for (size_t i = 0; i < self->n_mentions; i++) {
        const char *section = self->mentions[i].section;
        if (!self->mentions[i].idle) continue;
        begin_section(file, last, section);
        for (size_t k = 0; k < self->n_idle; k++) {
            const weft_entry *idle = &self->idle[k];
            const weft_key *row = idle->row;
            const bool is_path = row != NULL && (row->type == WEFT_KEY_PATH || (row->flags & WEFT_PATHS) != 0);
            if (strcmp(idle->item->section, section) == 0 && !is_secret(row))
                weft_ini_print(file, idle->item->key, is_path ? idle->value.text : idle->item->value);
        }
    }
}

weft_status weft_config_save_resolved(const weft_config *self, const char *path, weft_error *err) {
    size_t n = 0;
    const weft_entry **entries = NULL;
    const char *last = NULL;
    weft_file saved;
    FILE *file = weft_file_begin(&saved, path, err);
    if (file == NULL) return (weft_status)(err == NULL ? WEFT_E_SYSTEM : err->code);
    entries = list_entries(self, &n);
    for (size_t i = 0; i < 2 * n; i++) { /* the keys of plugins' own sections follow all others */
        const weft_entry *entry = entries[i % n];
        const char *home = home_of(self, entry);
        if ((i >= n) != (strcmp(home, entry->section) != 0)) continue;
        begin_section(file, &last, home);
        if (!is_secret(entry->row)) weft_ini_print(file, entry->row->name, entry->value.text);
    }
    free(entries);
    write_idle(self, file, &last);
    return weft_file_commit(&saved, err);
}

void weft_config_each_same(const weft_config *self, void (*visit)(void *context, const char *key, const char *value),
                           void *context) {
    for (size_t i = 0; i < self->n_entries; i++) {
        const weft_entry *entry = &self->entries[i];
        char key[200];
        if ((entry->row->flags & WEFT_SAME) == 0 || is_secret(entry->row)) continue;
        (void)snprintf(key, sizeof key, "[%s] %s", entry->section, entry->row->name);
        visit(context, key, entry->value.text);
    }
}

/* ---- values with their sources ---- */

static const char *shown_value(const weft_key *row, const char *text) {
    if (is_secret(row)) return "(secret)";
    return *text == '\0' ? "\"\"" : text;
}

const char *weft_config_shown(const weft_config *self, const char *section, const char *key) {
    const weft_entry *entry = weft_config_entry(self, section, key);
    return entry == NULL ? NULL : shown_value(entry->row, entry->value.text);
}

weft_config_row *weft_config_rows(const weft_config *self, size_t *n) {
    size_t n_entries = 0;
    const weft_entry **entries = list_entries(self, &n_entries);
    weft_config_row *rows = weft_alloc(n_entries + self->n_idle, sizeof *rows);
    *n = n_entries + self->n_idle;
    for (size_t i = 0; i < *n; i++) {
        const bool is_idle = i >= n_entries;
        const weft_entry *entry = is_idle ? &self->idle[i - n_entries] : entries[i];
        const weft_item *item = entry->item;
        const char *text = entry->row != NULL ? entry->value.text : item->value;
        weft_config_row *row = &rows[i];
        *row = (weft_config_row){"", shown_value(entry->row, text), "", entry->row, &entry->value, is_idle};
        (void)snprintf(row->name, sizeof row->name, "%s.%s", entry->section,
                       entry->row != NULL ? entry->row->name : item->key);
        if (item == NULL || strcmp(item->section, entry->section) == 0)
            (void)snprintf(row->source, sizeof row->source, "%s", item == NULL ? "default" : item->source);
        else (void)snprintf(row->source, sizeof row->source, "%s, in [%s]", item->source, item->section);
    }
    free(entries);
    return rows;
}

/* Returns the value in its JSON type; words and lists are strings. */
static json_t *value_json(const weft_config_row *row) {
    int64_t whole = 0;
    double real = 0;
    if (row->key == NULL) return json_string(row->text);
    memcpy(&whole, row->value->bytes, sizeof whole);
    memcpy(&real, row->value->bytes, sizeof real);
    if (is_secret(row->key)) return json_null();
    switch (row->key->type) {
    case WEFT_KEY_I64: return whole <= WEFT_AUTO_I64 ? json_string(row->value->text) : json_integer(whole);
    case WEFT_KEY_F64: return real <= WEFT_NONE_F64 ? json_string(row->value->text) : json_real(real);
    case WEFT_KEY_BOOL: return json_boolean(whole);
    default: return json_string(row->value->text);
    }
}

json_t *weft_config_array(const weft_config *self) {
    size_t n = 0;
    weft_config_row *rows = weft_config_rows(self, &n);
    json_t *array = json_array();
    bool is_text = true;
    for (size_t i = 0; i < n; i++) {
        const weft_config_row *row = &rows[i];
        json_t *object =
            json_pack("{s:s, s:o, s:s}", "key", row->name, "value", value_json(row), "source", row->source);
        if (row->is_idle) (void)json_object_set_new(object, "idle", json_true());
        is_text = json_array_append_new(array, object) == 0 && is_text;
    }
    free(rows);
    if (is_text) return array;
    json_decref(array);
    return NULL;
}
