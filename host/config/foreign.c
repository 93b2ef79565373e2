/* host/config/foreign.c: see foreign.h. */
#include "config/foreign.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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

void weft_foreign_print(const weft_foreign *self, char *out, size_t size) {
    const bool is_flag = *self->section == '\0', says = *self->value != '\0';
    (void)snprintf(out, size, "%s%s%s%s%s%s%s%s", is_flag ? "the flag " : "", self->key, is_flag ? "" : " in [",
                   self->section, is_flag ? "" : "]", says ? " (" : "", self->value, says ? ")" : "");
}
