/* host/config/foreign.c: see foreign.h. */
#include "config/foreign.h"

#include "config/settings.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const weft_foreign rows[] = {
#define FOREIGN(theirs, section, key, value) {theirs, section, key, value},
#include "config/foreign_names.def"
#undef FOREIGN
};

static bool is_name(const char *known, const char *name, size_t n) {
    if (strlen(known) != n) return false;
    for (size_t i = 0; i < n; i++) {
        if (known[i] != (name[i] == '-' ? '_' : tolower((unsigned char)name[i]))) return false;
    }
    return true;
}

const weft_foreign *weft_foreign_find(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (is_name(rows[i].theirs, name, n)) return &rows[i];
    }
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

const char *weft_foreign_family(const char *model_type) {
    static const struct {
        const char *type, *why;
    } families[] = {
#define FOREIGN_FAMILY(type, why) {type, why},
#include "config/foreign_families.def"
#undef FOREIGN_FAMILY
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].type, model_type) == 0) return families[i].why;
    return NULL;
}

/* A further section that has the key: of two there is no only one. */
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
    const bool is_flag = *self->section == '\0', says = *self->value != '\0';
    (void)snprintf(out, size, "%s%s%s%s%s%s%s%s", is_flag ? "the flag " : "", self->key, is_flag ? "" : " in [",
                   self->section, is_flag ? "" : "]", says ? " (" : "", self->value, says ? ")" : "");
}
