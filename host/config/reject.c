/* host/config/reject.c: error messages about a value, prefixed with its source. */
#include "config/store.h"

void weft_config_subject(const weft_config *self, const char *section, const char *key, char *out, size_t size) {
    const weft_entry *entry = weft_config_entry(self, section, key);
    const weft_item *item = weft_config_item(self, section, key);
    const bool secret = entry != NULL && (entry->row->flags & WEFT_SECRET) != 0;
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
    weft_config_subject(self, section, key, subject, size);
    return true;
}

/* Returns the section's line if all its values are from the file, the command line if all are overrides, else the file.
 * The plugin's own section counts as part of it. */
static const char *section_source(const weft_config *self, const char *section) {
    const char *source = self->name, *item_source = NULL;
    size_t in_file = 0, n = 0;
    for (size_t i = 0; i < self->n_mentions; i++) {
        if (strcmp(self->mentions[i].section, section) == 0) source = self->mentions[i].source;
    }
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
    weft_config_subject(self, section, key, err->text, sizeof err->text);
    n = strlen(err->text);
    va_start(args, format);
    (void)vsnprintf(err->text + n, sizeof err->text - n, format, args);
    va_end(args);
    err->code = WEFT_E_USER;
    return WEFT_E_USER;
}

weft_status weft_config_reject_section(const weft_config *self, const char *section, weft_error *err,
                                       const char *format, ...) {
    weft_error local = WEFT_ERROR_INIT;
    va_list args;
    size_t n = 0;
    if (err == NULL) err = &local;
    (void)snprintf(err->text, sizeof err->text, "%s: [%s] ", section_source(self, section), section);
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
