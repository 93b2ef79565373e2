/* host/tools/init/draft.c: see draft.h. */
#include "tools/init/draft.h"

#include "config/ini.h"
#include "config/number.h"

#include <stdarg.h>
#include <stdlib.h>

enum { COLUMNS = 100 };

/* A key that is new goes behind the others of its section. */
static weft_draft_row *row_of(weft_draft *self, const char *section, const char *key) {
    int32_t at = self->n;
    for (int32_t i = 0; i < self->n; i++) {
        if (strcmp(self->rows[i].section, section) != 0) continue;
        if (strcmp(self->rows[i].key, key) == 0) return &self->rows[i];
        at = i + 1;
    }
    if (self->n == WEFT_DRAFT_ROWS) return &self->rows[WEFT_DRAFT_ROWS - 1];
    memmove(&self->rows[at + 1], &self->rows[at], (size_t)(self->n - at) * sizeof *self->rows);
    self->n++;
    memset(&self->rows[at], 0, sizeof *self->rows);
    (void)snprintf(self->rows[at].section, sizeof self->rows[at].section, "%s", section);
    (void)snprintf(self->rows[at].key, sizeof self->rows[at].key, "%s", key);
    return &self->rows[at];
}

static void set_row(weft_draft_row *row, const char *value, const char *why, va_list more) {
    (void)snprintf(row->value, sizeof row->value, "%s", value);
    (void)vsnprintf(row->why, sizeof row->why, why, more);
}

void weft_draft_set(weft_draft *self, const char *section, const char *key, const char *value, const char *why, ...) {
    va_list more;
    va_start(more, why);
    set_row(row_of(self, section, key), value, why, more);
    va_end(more);
}

void weft_draft_set_number(weft_draft *self, const char *section, const char *key, double value, const char *why, ...) {
    char text[40];
    va_list more;
    weft_number_print(text, sizeof text, value);
    va_start(more, why);
    set_row(row_of(self, section, key), text, why, more);
    va_end(more);
}

char **weft_draft_overrides(const weft_draft *self) {
    char **out = calloc((size_t)self->n + 1, sizeof *out);
    for (int32_t i = 0; out != NULL && i < self->n; i++) {
        const weft_draft_row *row = &self->rows[i];
        if (asprintf(&out[i], "%s.%s=%s", row->section, row->key, row->value) >= 0) continue;
        out[i] = NULL;
        weft_draft_free_overrides(out);
        return NULL;
    }
    return out;
}

void weft_draft_free_overrides(char **overrides) {
    for (size_t i = 0; overrides != NULL && overrides[i] != NULL; i++) free(overrides[i]);
    free(overrides);
}

/* In lines that an editor shows whole. */
static void write_comment(const char *text, FILE *to) {
    size_t at = 0;
    while (*text != '\0') {
        const size_t n = strcspn(text, " ");
        if (at == 0 || at + 1 + n > COLUMNS) {
            (void)fprintf(to, "%s#", at > 0 ? "\n" : "");
            at = 1;
        }
        (void)fprintf(to, " %.*s", (int)n, text);
        at += 1 + n;
        text += n + strspn(text + n, " ");
    }
    (void)fputc('\n', to);
}

void weft_draft_write(const weft_draft *self, const char *title, FILE *to) {
    write_comment(title, to);
    for (int32_t i = 0; i < self->n; i++) {
        const weft_draft_row *row = &self->rows[i];
        if (i == 0 || strcmp(row->section, self->rows[i - 1].section) != 0) (void)fprintf(to, "\n[%s]\n", row->section);
        if (row->why[0] != '\0') write_comment(row->why, to);
        weft_ini_print(to, row->key, row->value);
    }
}
