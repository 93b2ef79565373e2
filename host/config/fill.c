/* host/config/fill.c: fills key tables from the user's items. */
#include "base/alloc.h"
#include "base/text.h"
#include "config/foreign.h"
#include "config/nearest.h"
#include "config/store.h"

#include <stdlib.h>

/* Rejects keys and sections that no table declared. */

static bool is_among(const char *name, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static weft_status unknown_section(const weft_mention *mention, const char *const *sections, size_t n,
                                   const char *const *kinds, size_t n_kinds, weft_error *err) {
    const char *dot = strchr(mention->section, '.');
    weft_nearest near = {mention->section, "", 0};
    char meant[96], list[1024] = "";
    for (size_t i = 0; i < n; i++) {
        weft_nearest_offer(&near, sections[i], strlen(sections[i]));
        weft_words_append(list, sizeof list, "%s%s", i == 0 ? "" : ", ", sections[i]);
    }
    for (size_t i = 0; dot != NULL && i < n_kinds; i++) { /* "strateg.fsdp" can match "strategy.fsdp" */
        char name[64];
        const int length = snprintf(name, sizeof name, "%s%s", kinds[i], dot);
        if ((size_t)length < sizeof name) weft_nearest_offer(&near, name, (size_t)length);
    }
    weft_nearest_print(&near, meant, sizeof meant);
    return weft_error_set(err, WEFT_E_USER, "%s: there is no section [%s]%s The sections are: %s", mention->source,
                          mention->section, *meant == '\0' ? "." : meant, list);
}

/* Returns the declared key of the section that is nearest to the item's key. */
static weft_nearest nearest_key(const weft_config *self, const weft_item *item) {
    weft_nearest near = {item->key, "", 0};
    for (size_t i = 0; i < self->n_keys; i++) {
        const weft_declared_key *key = &self->keys[i];
        if (strcmp(key->section, item->section) == 0) weft_nearest_offer(&near, key->row->name, strlen(key->row->name));
    }
    return near;
}

/* Returns Weft's equivalent of another program's name, or NULL. A selected plugin may have a different key. */
static const weft_foreign *find_foreign(const weft_config *self, const weft_item *item) {
    const weft_foreign *foreign = weft_foreign_find(item->section, item->key, strlen(item->key));
    if (foreign == NULL || *foreign->section == '\0' || weft_config_own(self, foreign->section) == NULL) return foreign;
    return weft_config_is_declared(self, foreign->section, foreign->key) || strcmp(foreign->key, "plugin") == 0
               ? foreign
               : NULL;
}

/* Formats "; Weft has it as lr in [optimizer].", "; did you mean warmup?", or "; [optimizer] has a key of that name:
 * Learning rate." An identical key in another section has priority over one that is more than a typo away. */
static void advise_key(const weft_config *self, const weft_item *item, char *out, size_t size) {
    const weft_nearest near = nearest_key(self, item);
    const weft_foreign *foreign = find_foreign(self, item);
    const weft_declared_key *elsewhere = NULL;
    char meant[400];
    if (foreign != NULL) {
        weft_foreign_print(foreign, meant, sizeof meant);
        (void)snprintf(out, size, "; %s.", meant);
        return;
    }
    for (size_t i = 0; i < self->n_keys; i++) {
        const weft_declared_key *key = &self->keys[i];
        if (strchr(key->section, '.') != NULL || strcmp(key->section, item->section) == 0) continue;
        if (strcmp(key->row->name, item->key) == 0) elsewhere = key;
    }
    if (elsewhere == NULL || (*near.best != '\0' && near.distance <= 1)) weft_nearest_print(&near, out, size);
    else (void)snprintf(out, size, "; [%s] has a key of that name: %s", elsewhere->section, elsewhere->row->help);
}

/* Rejects a key and lists those of its section. its_plugin: also those of its plugin, which is not known yet. */
static weft_status unknown_key(const weft_config *self, const weft_item *item, bool its_plugin, weft_error *err) {
    static const char more[] = "those of its plugin";
    char meant[440], list[1024] = "", keys[1100];
    for (size_t i = 0; i < self->n_keys; i++) {
        const weft_declared_key *key = &self->keys[i];
        if (strcmp(key->section, item->section) != 0 || weft_config_is_moot(self, key->section, key->row)) continue;
        weft_words_append(list, sizeof list, "%s%s", *list == '\0' ? "" : ", ", key->row->name);
    }
    advise_key(self, item, meant, sizeof meant);
    if (list[0] == '\0' && !its_plugin) (void)snprintf(keys, sizeof keys, "It has no keys");
    else if (list[0] == '\0') (void)snprintf(keys, sizeof keys, "Its keys are %s", more);
    else
        (void)snprintf(keys, sizeof keys, "Its keys are: %s%s%s", list, its_plugin ? ", and " : "",
                       its_plugin ? more : "");
    return weft_error_set(err, WEFT_E_USER, "%s: [%s] has no key %.80s%s %s", item->source, item->section, item->key,
                          *meant == '\0' ? "." : meant, keys);
}

static bool is_unknown(const weft_item *item, const char *section) {
    return !item->claimed && strcmp(item->section, section) == 0;
}

/* Returns whether the item is probably a misspelt declared, unset key; key NULL: any such key. */
static bool item_means_key(const weft_config *self, const weft_item *item, const char *key) {
    const weft_nearest near = nearest_key(self, item);
    if (*near.best == '\0' || weft_config_has_key(self, item->section, near.best)) return false;
    return key == NULL || strcmp(near.best, key) == 0;
}

weft_status weft_config_misspelt(const weft_config *self, const char *section, weft_error *err) {
    static const char *const keys[] = {"plugin", NULL};
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < self->n_items; i++) {
            const weft_item *item = &self->items[i];
            if (is_unknown(item, section) && item_means_key(self, item, keys[k]))
                return unknown_key(self, item, true, err);
        }
    }
    return WEFT_OK;
}

/* Returns the section's first undeclared item, or one that is probably a misspelt `plugin`. */
static const weft_item *find_first_unknown(const weft_config *self, const char *section) {
    const weft_item *first = NULL;
    for (size_t i = self->n_items; i > 0; i--) {
        const weft_item *item = &self->items[i - 1];
        if (!is_unknown(item, section)) continue;
        if (item_means_key(self, item, "plugin")) return item;
        first = item;
    }
    return first;
}

const char *weft_config_stray(const weft_config *self, const char *section) {
    const weft_item *item = find_first_unknown(self, section);
    return item != NULL ? item->key : NULL;
}

weft_status weft_config_unknown(const weft_config *self, const char *section, weft_error *err) {
    const weft_item *item = find_first_unknown(self, section);
    return item != NULL ? unknown_key(self, item, false, err) : WEFT_OK;
}

weft_status weft_config_sections(const weft_config *self, const char *const *sections, size_t n,
                                 const char *const *kinds, size_t n_kinds, weft_error *err) {
    for (size_t i = 0; i < self->n_mentions; i++) {
        const weft_mention *mention = &self->mentions[i];
        bool is_known = mention->known || is_among(mention->section, sections, n);
        for (size_t k = 0; k < n_kinds; k++) is_known |= weft_section_id(mention->section, kinds[k]) != NULL;
        if (!is_known) return unknown_section(mention, sections, n, kinds, n_kinds, err);
    }
    return WEFT_OK;
}

weft_status weft_config_finish(const weft_config *self, weft_error *err) {
    const char **sections = weft_alloc(self->n_entries, sizeof *sections); /* the filled ones */
    weft_status status = WEFT_OK;
    size_t n = 0;
    for (size_t i = 0; i < self->n_entries; i++)
        if (!is_among(self->entries[i].section, sections, n)) sections[n++] = self->entries[i].section;
    status = weft_config_sections(self, sections, n, NULL, 0, err);
    free(sections);
    for (size_t i = 0; status == WEFT_OK && i < self->n_items; i++)
        if (!self->items[i].claimed) status = unknown_key(self, &self->items[i], false, err);
    return status;
}

const weft_entry *weft_config_entry(const weft_config *self, const char *section, const char *key) {
    for (size_t i = 0; i < self->n_entries; i++) {
        const weft_entry *entry = &self->entries[i];
        if (strcmp(entry->section, section) == 0 && strcmp(entry->row->name, key) == 0) return entry;
    }
    return NULL;
}

static void add_entry(weft_config *self, weft_entry entry) {
    entry.section = weft_config_keep(self, weft_strdup(entry.section));
    self->entries = weft_realloc(self->entries, self->n_entries + 1, sizeof *self->entries);
    self->entries[self->n_entries++] = entry;
}

weft_status weft_config_parse(weft_config *self, weft_entry *entry, weft_error *err) {
    const weft_key *row = entry->row;
    const weft_item *item = entry->item;
    weft_error local = WEFT_ERROR_INIT;
    char subject[600];
    weft_status status = WEFT_OK;
    if (item != NULL && (row->flags & WEFT_REMOVED) != 0)
        return weft_error_set(err, WEFT_E_USER, "%s: [%s] %s was removed: %s", item->source, item->section, row->name,
                              row->help);
    if (item == NULL && row->fallback == NULL)
        return weft_error_set(err, WEFT_E_USER, "%s: [%s] %s is missing and has no default. %s", self->name,
                              entry->section, row->name, row->help);
    status = weft_value_parse(&entry->value, row, item != NULL ? item->value : row->fallback,
                              item != NULL ? item->directory : self->here, &local);
    (void)weft_config_keep(self, entry->value.text);
    if (status == WEFT_OK) return WEFT_OK;
    weft_config_subject(self, entry->section, row->name, row, subject, sizeof subject);
    return weft_error_set(err, status, "%s%s", subject, local.text);
}

/* Fills one row: creates its entry, unless the key was removed. */
static weft_status fill_row(weft_config *self, const char *section, const weft_key *row, weft_error *err) {
    const weft_entry *before = weft_config_entry(self, section, row->name);
    const char *own = weft_config_own(self, section);
    weft_entry entry = {section, row, {{0}, NULL}, NULL};
    weft_status status = WEFT_OK;
    if (before != NULL && before->row == row) return WEFT_OK;
    if (before != NULL)
        return weft_error_set(err, WEFT_E_PLUGIN,
                              "[%s] %s is declared by two key tables; the host's keys of a section and its plugin's "
                              "must have names of their own",
                              section, row->name);
    weft_config_claim(self, section, row);
    entry.item = weft_config_item(self, section, row->name);
    if ((row->flags & WEFT_REMOVED) != 0) {
        if (entry.item == NULL && own != NULL) entry.item = weft_config_item(self, own, row->name);
        if (entry.item == NULL) return WEFT_OK;
    }
    status = weft_config_parse(self, &entry, err);
    if (status == WEFT_OK) add_entry(self, entry);
    return status;
}

void weft_config_declare(weft_config *self, const char *section, const weft_key *keys, uint64_t n, uint32_t stride) {
    for (uint64_t i = 0; i < n; i++) weft_config_claim(self, section, weft_key_row(keys, i, stride));
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

bool weft_config_at_default(const weft_config *self, const char *section, const char *key) {
    const weft_entry *entry = weft_config_entry(self, section, key);
    weft_value value = {{0}, NULL};
    bool same = false;
    if (entry == NULL || entry->item == NULL) return true;
    same = entry->row->fallback != NULL &&
           weft_value_parse(&value, entry->row, entry->row->fallback, self->here, NULL) == WEFT_OK &&
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
    weft_entry entry = {kind, NULL, {{0}, NULL}, item};
    weft_status status = WEFT_OK;
    weft_config_claim(self, kind, plugin_row(false));
    if (before != NULL) {
        *out = before->value.text;
        return WEFT_OK;
    }
    if (value == NULL)
        return weft_error_set(err, WEFT_E_USER, "%s: [%s] plugin is missing: name the %s plugin to use", self->name,
                              kind, kind);
    if (*value == '\0')
        return weft_config_reject(self, kind, "plugin", err,
                                  "is empty. Allowed: a plugin's id, or the path of its file");
    entry.row = plugin_row(strchr(value, '/') != NULL);
    status = weft_value_parse(&entry.value, entry.row, value, item != NULL ? item->directory : self->here, err);
    if (status != WEFT_OK) return status;
    (void)weft_config_keep(self, entry.value.text);
    add_entry(self, entry);
    *out = entry.value.text;
    return WEFT_OK;
}
