/* host/config/foreign.c: see foreign.h. */
#include "config/foreign.h"

#include "config/number.h"
#include "config/settings.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const weft_foreign rows[] = {
#define FOREIGN(theirs, section, key, becomes, note) {theirs, section, key, becomes, note},
#include "config/foreign_names.def"
#undef FOREIGN
};

static int fold(char c) {
    return c == '-' ? '_' : tolower((unsigned char)c);
}

/* Returns whether a list separated by blanks has the name of n letters. */
static bool have_name(const char *names, const char *name, size_t n) {
    const char *known = NULL;
    size_t length = 0, same = 0;
    while (weft_part_next(&names, ' ', &known, &length)) {
        for (same = 0; same < n && length == n && fold(known[same]) == fold(name[same]);) same++;
        if (length == n && same == n) return true;
    }
    return false;
}

static const weft_foreign *find_name(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (have_name(rows[i].theirs, name, n)) return &rows[i];
    return NULL;
}

const weft_foreign *weft_foreign_find(const char *section, const char *name, size_t n) {
    char whole[120];
    const int length = section == NULL ? 0 : snprintf(whole, sizeof whole, "%s.%.*s", section, (int)n, name);
    const weft_foreign *found = length < (int)sizeof whole ? find_name(whole, (size_t)length) : NULL;
    return found != NULL ? found : find_name(name, n);
}

const weft_foreign_id *weft_foreign_id_find(const char *kind, const char *name) {
    static const weft_foreign_id ids[] = {
#define FOREIGN_ID(kind, theirs, id, with) {kind, theirs, id, with},
#include "config/foreign_ids.def"
#undef FOREIGN_ID
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (strcmp(ids[i].kind, kind) == 0 && have_name(ids[i].theirs, name, strlen(name))) return &ids[i];
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
        if (*rows[i].section != '\0' && have_name(rows[i].key, key, n)) add_home(&only, &several, rows[i].section);
    for (size_t i = 0; weft_settings_table(&table, i); i++)
        for (uint64_t k = 0; k < table.n; k++)
            if (have_name(table.keys[k].name, key, n)) add_home(&only, &several, table.section);
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

bool weft_foreign_override(const weft_foreign *self, const char *value, char *out, size_t size) {
    const bool is_other = *self->becomes == '?', has_note = *self->note != '\0';
    if (*self->section == '\0' || (*self->becomes != '\0' && have_name("false no none off 0", value, strlen(value))))
        return false;
    (void)snprintf(out, size, "%s.%s=%.60s%s%s%s", self->section, self->key,
                   is_other                 ? "VALUE"
                   : *self->becomes != '\0' ? self->becomes
                                            : value,
                   is_other && has_note ? " (" : "", is_other ? self->note : "", is_other && has_note ? ")" : "");
    return true;
}
