/* host/config/foreign.c: see foreign.h. */
#include "config/foreign.h"

#include "config/settings.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const weft_foreign rows[] = {
#define FOREIGN(theirs, section, key, becomes, note) {theirs, section, key, becomes, note},
#include "config/foreign_names.def"
#undef FOREIGN
};

static bool is_name(const char *known, const char *name, size_t n) {
    if (strlen(known) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (known[i] != (name[i] == '-' ? '_' : tolower((unsigned char)name[i]))) return false;
    return true;
}

const weft_foreign *weft_foreign_find(const char *section, const char *name, size_t n) {
    const size_t before = section == NULL ? 0 : strlen(section);
    for (size_t i = 0; section != NULL && i < sizeof rows / sizeof *rows; i++) {
        const char *theirs = rows[i].theirs;
        if (strncmp(theirs, section, before) == 0 && theirs[before] == '.' && is_name(theirs + before + 1, name, n))
            return &rows[i];
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_name(rows[i].theirs, name, n)) return &rows[i];
    return NULL;
}

const weft_foreign_id *weft_foreign_id_find(const char *kind, const char *name) {
    static const weft_foreign_id ids[] = {
#define FOREIGN_ID(kind, theirs, id, with) {kind, theirs, id, with},
#include "config/foreign_ids.def"
#undef FOREIGN_ID
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (strcmp(ids[i].kind, kind) == 0 && strcasecmp(ids[i].theirs, name) == 0) return &ids[i];
    return NULL;
}

/* Adds a section that has the key; with two the result is ambiguous. */
static void add_home(const char **only, bool *several, const char *section) {
    if (*only == NULL) *only = section;
    else if (strcmp(*only, section) != 0) *several = true;
}

const char *weft_foreign_home(const char *key, size_t n) {
    const char *only = NULL;
    bool several = false;
    weft_settings_section table;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (*rows[i].section != '\0' && is_name(rows[i].key, key, n)) add_home(&only, &several, rows[i].section);
    for (size_t i = 0; weft_settings_table(&table, i); i++)
        for (uint64_t k = 0; k < table.n; k++)
            if (is_name(table.keys[k].name, key, n)) add_home(&only, &several, table.section);
    return several ? NULL : only;
}

void weft_foreign_print(const weft_foreign *self, char *out, size_t size) {
    const bool is_value = *self->becomes != '\0' && *self->becomes != '?', has_note = *self->note != '\0';
    char more[300];
    (void)snprintf(more, sizeof more, "%s%s%s%s%s", is_value || has_note ? " (" : "", is_value ? self->becomes : "",
                   is_value && has_note ? ": " : "", self->note, is_value || has_note ? ")" : "");
    if (*self->key == '\0') (void)snprintf(out, size, "Weft has no such setting: %s", self->note);
    else if (*self->section == '\0') (void)snprintf(out, size, "Weft has it as the flag %s", self->key);
    else (void)snprintf(out, size, "Weft has it as %s in [%s]%s", self->key, self->section, more);
}

static bool is_no(const char *value) {
    static const char *const words[] = {"false", "no", "none", "off", "0"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(value, words[i]) == 0) return true;
    return false;
}

bool weft_foreign_override(const weft_foreign *self, const char *value, char *out, size_t size) {
    const bool is_other = *self->becomes == '?', has_note = *self->note != '\0';
    if (*self->section == '\0' || (*self->becomes != '\0' && is_no(value))) return false;
    (void)snprintf(out, size, "%s.%s=%.60s%s%s%s", self->section, self->key,
                   is_other                 ? "VALUE"
                   : *self->becomes != '\0' ? self->becomes
                                            : value,
                   is_other && has_note ? " (" : "", is_other ? self->note : "", is_other && has_note ? ")" : "");
    return true;
}
