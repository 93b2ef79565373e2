/* host/config/explain.c: a filled configuration written out again, as INI and as a table of sources. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/file.h"
#include "config/ini.h"
#include "config/store.h"

static weft_status written(FILE *file, weft_error *err) {
    if (fflush(file) == 0 && !ferror(file)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "the configuration cannot be written: %s", strerror(errno));
}

/* Calls visit for every entry: sections in the order in which they were first filled, `plugin` first in each. */
static void for_each(const weft_config *self, void (*visit)(void *context, const weft_entry *entry, bool first),
                     void *context) {
    for (size_t i = 0; i < self->n_entries; i++) {
        const char *section = self->entries[i].section;
        const weft_entry *plugin = weft_config_entry(self, section, "plugin");
        bool first = true;
        for (size_t k = 0; k < i; k++) first = first && strcmp(self->entries[k].section, section) != 0;
        if (!first) continue;
        if (plugin != NULL) visit(context, plugin, true);
        first = plugin == NULL;
        for (size_t k = i; k < self->n_entries; k++) {
            const weft_entry *entry = &self->entries[k];
            if (entry == plugin || strcmp(entry->section, section) != 0) continue;
            visit(context, entry, first);
            first = false;
        }
    }
}

static bool is_secret(const weft_entry *entry) {
    return (entry->row->flags & WEFT_SECRET) != 0;
}

/* An INI file as it grows. */
typedef struct ini {
    FILE *file;
    bool started;
} ini;

static void write_entry(void *context, const weft_entry *entry, bool first) {
    ini *self = context;
    if (first) (void)fprintf(self->file, "%s[%s]\n", self->started ? "\n" : "", entry->section);
    if (!is_secret(entry)) weft_ini_print(self->file, entry->row->name, entry->value.text);
    self->started = true;
}

weft_status weft_config_write_resolved(const weft_config *self, FILE *file, weft_error *err) {
    ini out = {file, false};
    for_each(self, write_entry, &out);
    return written(file, err);
}

weft_status weft_config_save_resolved(const weft_config *self, const char *path, weft_error *err) {
    weft_file file;
    FILE *stream = weft_file_begin(&file, path, err);
    weft_status status = WEFT_OK;
    if (stream == NULL) return (weft_status)(err == NULL ? WEFT_E_SYSTEM : err->code);
    status = weft_config_write_resolved(self, stream, err);
    if (status == WEFT_OK) return weft_file_commit(&file, err);
    weft_file_cancel(&file);
    return weft_error_prefix(err, "%s: ", path);
}

void weft_config_each_same(const weft_config *self, void (*visit)(void *context, const char *key, const char *value),
                           void *context) {
    for (size_t i = 0; i < self->n_entries; i++) {
        const weft_entry *entry = &self->entries[i];
        char key[200];
        if ((entry->row->flags & WEFT_SAME) == 0 || is_secret(entry)) continue;
        (void)snprintf(key, sizeof key, "[%s] %s", entry->section, entry->row->name);
        visit(context, key, entry->value.text);
    }
}

/* Widths of the table's first two columns, and then its lines. */
typedef struct table {
    FILE *file;
    int key_width, value_width;
} table;

static const char *shown(const weft_entry *entry) {
    if (is_secret(entry)) return "(secret)";
    return *entry->value.text == '\0' ? "\"\"" : entry->value.text;
}

const char *weft_config_shown(const weft_config *self, const char *section, const char *key) {
    const weft_entry *entry = weft_config_entry(self, section, key);
    return entry == NULL ? NULL : shown(entry);
}

static const char *source(const weft_entry *entry) {
    return entry->item == NULL ? "default" : entry->item->source;
}

static void measure(void *context, const weft_entry *entry, bool first) {
    table *self = context;
    const int key = (int)(strlen(entry->section) + 1 + strlen(entry->row->name));
    const int value = (int)strnlen(shown(entry), 60); /* what is longer moves its own line only */
    (void)first;
    if (key > self->key_width) self->key_width = key;
    if (value > self->value_width) self->value_width = value;
}

static void print_line(void *context, const weft_entry *entry, bool first) {
    const table *self = context;
    const int left = self->key_width - (int)strlen(entry->section) - 1;
    (void)first;
    (void)fprintf(self->file, "%s.%-*s  %-*s  %s\n", entry->section, left, entry->row->name, self->value_width,
                  shown(entry), source(entry));
}

/* The value as its type in JSON; words and lists are texts. */
static json_t *value_json(const weft_entry *entry) {
    const weft_value *value = &entry->value;
    int64_t whole = 0;
    double real = 0;
    memcpy(&whole, value->bytes, sizeof whole);
    memcpy(&real, value->bytes, sizeof real);
    if (is_secret(entry)) return json_null();
    switch (entry->row->type) {
    case WEFT_KEY_I64: return whole <= WEFT_AUTO_I64 ? json_string(value->text) : json_integer(whole);
    case WEFT_KEY_F64: return real <= WEFT_NONE_F64 ? json_string(value->text) : json_real(real);
    case WEFT_KEY_BOOL: return json_boolean(whole);
    default: return json_string(value->text);
    }
}

static void add_json(void *context, const weft_entry *entry, bool first) {
    char *key = NULL;
    (void)first;
    if (asprintf(&key, "%s.%s", entry->section, entry->row->name) < 0) return;
    (void)json_array_append_new(context, json_pack("{s:s, s:o, s:s}", "key", key, "value", value_json(entry), "source",
                                                   source(entry)));
    free(key);
}

static weft_status explain_json(const weft_config *self, FILE *file, weft_error *err) {
    json_t *array = json_array();
    weft_status status = WEFT_OK;
    if (array == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory left for the configuration's table");
    for_each(self, add_json, array);
    if (json_array_size(array) != self->n_entries) {
        status =
            weft_error_set(err, WEFT_E_USER, "the configuration cannot be shown as JSON: a path in it is not UTF-8");
    } else if (json_dumpf(array, file, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0 || fputc('\n', file) == EOF) {
        status = weft_error_set(err, WEFT_E_SYSTEM, "the configuration cannot be written: %s", strerror(errno));
    }
    json_decref(array);
    return status == WEFT_OK ? written(file, err) : status;
}

weft_status weft_config_explain(const weft_config *self, FILE *file, bool json, weft_error *err) {
    table lines = {file, 0, 0};
    if (json) return explain_json(self, file, err);
    for_each(self, measure, &lines);
    for_each(self, print_line, &lines);
    return written(file, err);
}
