/* host/config/explain.c: writes a filled configuration as INI and as a table of sources. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/file.h"
#include "config/ini.h"
#include "config/store.h"

static weft_status check_written(FILE *file, weft_error *err) {
    if (fflush(file) == 0 && !ferror(file)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "the configuration cannot be written: %s", strerror(errno));
}

typedef void visitor(void *context, const weft_entry *entry);

/* Omits unset keys that the section's plugin does not offer. */
static bool is_entry_told(const weft_config *self, const weft_entry *entry) {
    return entry->item != NULL || !weft_config_is_moot(self, entry->section, entry->row);
}

/* Calls visit for every entry: sections in the order of their first fill, `plugin` first in each. */
static void visit_entries(const weft_config *self, visitor *visit, void *context) {
    for (size_t i = 0; i < self->n_entries; i++) {
        const char *section = self->entries[i].section;
        const weft_entry *plugin = weft_config_entry(self, section, "plugin");
        bool first = true;
        for (size_t k = 0; k < i; k++) first = first && strcmp(self->entries[k].section, section) != 0;
        if (!first) continue;
        if (plugin != NULL) visit(context, plugin);
        for (size_t k = i; k < self->n_entries; k++) {
            const weft_entry *entry = &self->entries[k];
            if (entry != plugin && strcmp(entry->section, section) == 0 && is_entry_told(self, entry))
                visit(context, entry);
        }
    }
}

static bool is_secret(const weft_entry *entry) {
    return (entry->row->flags & WEFT_SECRET) != 0;
}

/* ---- the resolved file ---- */

/* State of the INI file being written. */
typedef struct ini {
    const weft_config *config;
    FILE *file;
    const char *section; /* of the last line; NULL: at the start */
    bool own;            /* writes the keys of a plugin's own section, else all others */
} ini;

static void begin_section(ini *self, const char *section) {
    if (self->section != NULL && strcmp(self->section, section) == 0) return;
    (void)fprintf(self->file, "%s[%s]\n", self->section != NULL ? "\n" : "", section);
    self->section = section;
}

/* A value is written to the section where the user set it, and a plugin's default to the plugin's own section. So the
 * file can change its plugin in one line wherever the user's file could. */
static const char *home_of(const weft_config *self, const weft_entry *entry) {
    const char *own = weft_config_own_section(self, entry->section, entry->row->name);
    if (entry->item != NULL) return entry->item->section;
    return own != NULL && (entry->row->flags & WEFT_HOST_OFFERED) == 0 ? own : entry->section;
}

static void write_entry(void *context, const weft_entry *entry) {
    ini *self = context;
    const char *home = home_of(self->config, entry);
    const bool own = home != entry->section && strcmp(home, entry->section) != 0;
    if (own != self->own) return;
    begin_section(self, home);
    if (!is_secret(entry)) weft_ini_print(self->file, entry->row->name, entry->value.text);
}

/* Writes an idle value as the user wrote it, except for paths, which would be relative to another file. */
static void write_idle(ini *self, const weft_idle *idle) {
    const weft_key *row = idle->row;
    const bool is_path = row != NULL && (row->type == WEFT_KEY_PATH || (row->flags & WEFT_PATHS) != 0);
    if (row == NULL || (row->flags & WEFT_SECRET) == 0)
        weft_ini_print(self->file, idle->item->key, is_path ? idle->value.text : idle->item->value);
}

static void write_idle_sections(ini *self) {
    const weft_config *config = self->config;
    for (size_t i = 0; i < config->n_mentions; i++) {
        const weft_mention *mention = &config->mentions[i];
        if (!mention->idle) continue;
        begin_section(self, mention->section);
        for (size_t k = 0; k < config->n_idle; k++) {
            if (strcmp(config->idle[k].item->section, mention->section) == 0) write_idle(self, &config->idle[k]);
        }
    }
}

weft_status weft_config_write_resolved(const weft_config *self, FILE *file, weft_error *err) {
    ini out = {self, file, NULL, false};
    visit_entries(self, write_entry, &out);
    out.own = true;
    visit_entries(self, write_entry, &out);
    write_idle_sections(&out);
    return check_written(file, err);
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

/* ---- the table of sources ---- */

/* A line of the table. */
typedef struct told {
    char key[160];
    const char *value;
    char source[480];
} told;

static const char *shown_value(const weft_key *row, const char *text) {
    if (row != NULL && (row->flags & WEFT_SECRET) != 0) return "(secret)";
    return *text == '\0' ? "\"\"" : text;
}

const char *weft_config_shown(const weft_config *self, const char *section, const char *key) {
    const weft_entry *entry = weft_config_entry(self, section, key);
    return entry == NULL ? NULL : shown_value(entry->row, entry->value.text);
}

/* Formats "run.ini:9", or "run.ini:9, in [strategy.fsdp]". */
static void tell_source(char *out, size_t size, const weft_entry *entry) {
    const weft_item *item = entry->item;
    if (item == NULL) (void)snprintf(out, size, "default");
    else if (strcmp(item->section, entry->section) == 0) (void)snprintf(out, size, "%s", item->source);
    else (void)snprintf(out, size, "%s, in [%s]", item->source, item->section);
}

static told tell_entry(const weft_entry *entry) {
    told line = {"", shown_value(entry->row, entry->value.text), ""};
    (void)snprintf(line.key, sizeof line.key, "%s.%s", entry->section, entry->row->name);
    tell_source(line.source, sizeof line.source, entry);
    return line;
}

static told tell_idle(const weft_idle *idle) {
    told line = {"", shown_value(idle->row, idle->row != NULL ? idle->value.text : idle->item->value), ""};
    (void)snprintf(line.key, sizeof line.key, "%s.%s", idle->item->section, idle->item->key);
    (void)snprintf(line.source, sizeof line.source, "%s, idle", idle->item->source);
    return line;
}

/* Widths of the table's first two columns, and its stream. */
typedef struct table {
    FILE *file;
    int key_width, value_width;
} table;

static void widen_table(table *self, const told *line) {
    const int key = (int)strlen(line->key);
    const int value = (int)strnlen(line->value, 60); /* longer values only shift their own line */
    if (key > self->key_width) self->key_width = key;
    if (value > self->value_width) self->value_width = value;
}

static void print_told(const table *self, const told *line) {
    (void)fprintf(self->file, "%-*s  %-*s  %s\n", self->key_width, line->key, self->value_width, line->value,
                  line->source);
}

static void measure_entry(void *context, const weft_entry *entry) {
    const told line = tell_entry(entry);
    widen_table(context, &line);
}

static void print_line(void *context, const weft_entry *entry) {
    const told line = tell_entry(entry);
    print_told(context, &line);
}

static void explain_table(const weft_config *self, FILE *file) {
    table lines = {file, 0, 0};
    visit_entries(self, measure_entry, &lines);
    for (size_t i = 0; i < self->n_idle; i++) {
        const told line = tell_idle(&self->idle[i]);
        widen_table(&lines, &line);
    }
    visit_entries(self, print_line, &lines);
    for (size_t i = 0; i < self->n_idle; i++) {
        const told line = tell_idle(&self->idle[i]);
        print_told(&lines, &line);
    }
}

/* ---- the same as JSON ---- */

/* Returns the value in its JSON type; words and lists are strings. */
static json_t *value_json(const weft_key *row, const weft_value *value) {
    int64_t whole = 0;
    double real = 0;
    memcpy(&whole, value->bytes, sizeof whole);
    memcpy(&real, value->bytes, sizeof real);
    if ((row->flags & WEFT_SECRET) != 0) return json_null();
    switch (row->type) {
    case WEFT_KEY_I64: return whole <= WEFT_AUTO_I64 ? json_string(value->text) : json_integer(whole);
    case WEFT_KEY_F64: return real <= WEFT_NONE_F64 ? json_string(value->text) : json_real(real);
    case WEFT_KEY_BOOL: return json_boolean(whole);
    default: return json_string(value->text);
    }
}

static void add_json(void *context, const weft_entry *entry) {
    const told line = tell_entry(entry);
    (void)json_array_append_new(context, json_pack("{s:s, s:o, s:s}", "key", line.key, "value",
                                                   value_json(entry->row, &entry->value), "source", line.source));
}

static void add_idle_json(json_t *array, const weft_idle *idle) {
    const told line = tell_idle(idle);
    json_t *value = idle->row != NULL ? value_json(idle->row, &idle->value) : json_string(idle->item->value);
    (void)json_array_append_new(array, json_pack("{s:s, s:o, s:s, s:b}", "key", line.key, "value", value, "source",
                                                 idle->item->source, "idle", 1));
}

static void count_entry(void *context, const weft_entry *entry) {
    size_t *n = context;
    (void)entry;
    ++*n;
}

static weft_status explain_json(const weft_config *self, FILE *file, weft_error *err) {
    json_t *array = json_array();
    weft_status status = WEFT_OK;
    size_t n = self->n_idle;
    if (array == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory left for the configuration's table");
    visit_entries(self, add_json, array);
    for (size_t i = 0; i < self->n_idle; i++) add_idle_json(array, &self->idle[i]);
    visit_entries(self, count_entry, &n);
    if (json_array_size(array) != n) {
        status =
            weft_error_set(err, WEFT_E_USER, "the configuration cannot be shown as JSON: a path in it is not UTF-8");
    } else if (json_dumpf(array, file, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0 || fputc('\n', file) == EOF) {
        status = weft_error_set(err, WEFT_E_SYSTEM, "the configuration cannot be written: %s", strerror(errno));
    }
    json_decref(array);
    return status == WEFT_OK ? check_written(file, err) : status;
}

weft_status weft_config_explain(const weft_config *self, FILE *file, bool json, weft_error *err) {
    if (json) return explain_json(self, file, err);
    explain_table(self, file);
    return check_written(file, err);
}
