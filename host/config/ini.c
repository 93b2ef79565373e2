/* host/config/ini.c: handles lines, comments and quotes around inih.
 *
 * inih classifies the lines. It reads through next_line, which passes only the text before a value. This file parses
 * the value itself, because inih's line buffer is small (200 bytes in some distributions) and truncates silently, and
 * because inih does not support quotes. */
#include "config/ini.h"

#include <ctype.h>
#include <ini.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "config/value.h"

#define LONGEST_SECTION 49 /* inih's limit */

typedef struct reader {
    weft_ini_visit *visit;
    void *context;
    const char *text;
    size_t n, at;
    long line;
    const char *value; /* after the separator of inih's current line */
    size_t value_n;
    char *scratch; /* n + 1 bytes */
    weft_status status;
    weft_error *err;
} reader;

typedef struct span {
    const char *p;
    size_t n;
} span;

static span trim_span(span s) {
    while (s.n > 0 && isspace((unsigned char)*s.p)) s.p++, s.n--;
    while (s.n > 0 && isspace((unsigned char)s.p[s.n - 1])) s.n--;
    return s;
}

static bool is_comment(span s) {
    return s.n > 0 && (*s.p == '#' || *s.p == ';');
}

/* Truncates at the first comment sign after a blank. */
static span without_comment(span s) {
    for (size_t i = 1; i < s.n; i++)
        if ((s.p[i] == '#' || s.p[i] == ';') && isspace((unsigned char)s.p[i - 1])) return (span){s.p, i};
    return s;
}

static weft_status section_name(reader *self, span s, span *name) {
    const char *close = memchr(s.p, ']', s.n);
    span behind = {NULL, 0};
    if (close == NULL) return weft_error_set(self->err, WEFT_E_USER, "a section's line ends without ]");
    *name = trim_span((span){s.p + 1, (size_t)(close - s.p) - 1});
    behind = (span){close, s.n - (size_t)(close - s.p)};
    if (trim_span(without_comment(behind)).n != 1)
        return weft_error_set(self->err, WEFT_E_USER, "text follows [%.*s]: put a key on a line of its own",
                              (int)name->n, name->p);
    for (size_t i = 0; i < name->n; i++) {
        const char c = name->p[i];
        if (!isalnum((unsigned char)c) && c != '_' && c != '-' && c != '.') name->n = 0;
    }
    if (name->n == 0 || name->n > LONGEST_SECTION)
        return weft_error_set(self->err, WEFT_E_USER,
                              "a section's name is letters, digits, _, - and . in brackets, at most %d of them",
                              LONGEST_SECTION);
    return WEFT_OK;
}

/* Writes a section's line for inih: only brackets and name. Calls the visitor directly, because inih does not report
 * sections without keys. */
static weft_status section_head(reader *self, span s, char *out, size_t size) {
    span name = {NULL, 0};
    weft_status status = section_name(self, s, &name);
    if (status != WEFT_OK) return status;
    (void)snprintf(out, size, "[%.*s]", (int)name.n, name.p);
    memcpy(self->scratch, name.p, name.n);
    self->scratch[name.n] = '\0';
    return self->visit(self->context, self->scratch, NULL, NULL, self->line, self->err);
}

/* Writes a key's line for inih: all text before the value. */
static weft_status key_head(reader *self, span s, char *out, size_t size) {
    size_t n = 0;
    while (n < s.n && s.p[n] != '=' && s.p[n] != ':') n++;
    if (n == s.n)
        return weft_error_set(self->err, WEFT_E_USER, "'%.*s%s' is neither [section] nor key = value",
                              (int)(n < 60 ? n : 60), s.p, n > 60 ? "..." : "");
    if (n + 2 > size) return weft_error_set(self->err, WEFT_E_USER, "a key of %zu letters is too long", n);
    memcpy(out, s.p, n + 1);
    out[n + 1] = '\0';
    self->value = s.p + n + 1;
    self->value_n = s.n - n - 1;
    return WEFT_OK;
}

static weft_status check_bytes(const reader *self, span s) {
    if (memchr(s.p, 0, s.n) != NULL) {
        return weft_error_set(self->err, WEFT_E_USER,
                              "a NUL byte: this is no text file, or one in UTF-16; save it as UTF-8");
    }
    if (!weft_text_is_clean(s.p, s.n))
        return weft_error_set(self->err, WEFT_E_USER,
                              "a control character, or a byte that is not UTF-8: save the file as UTF-8 text");
    return WEFT_OK;
}

/* Takes the next line, without its end and the blanks around it. */
static span cut_line(reader *self) {
    span s = {self->text + self->at, self->n - self->at};
    const char *end = memchr(s.p, '\n', s.n);
    if (end != NULL) s.n = (size_t)(end - s.p);
    self->at += s.n + 1;
    self->line++;
    if (self->line == 1 && s.n >= 3 && memcmp(s.p, "\xEF\xBB\xBF", 3) == 0) s.p += 3, s.n -= 3;
    if (s.n > 0 && s.p[s.n - 1] == '\r') s.n--;
    return s;
}

/* inih's fgets. */
static char *next_line(char *out, int size, void *stream) {
    reader *self = stream;
    span s = {NULL, 0};
    if (self->status != WEFT_OK || self->at >= self->n) return NULL;
    s = cut_line(self);
    self->status = check_bytes(self, s);
    s = trim_span(s);
    out[0] = '\0';
    if (self->status == WEFT_OK && s.n > 0 && !is_comment(s))
        self->status = *s.p == '[' ? section_head(self, s, out, (size_t)size) : key_head(self, s, out, (size_t)size);
    return self->status == WEFT_OK ? out : NULL;
}

/* Copies a quoted value, with at most a comment after it, to scratch. s begins with the quote. */
static weft_status read_quoted(reader *self, span s) {
    size_t n = 0, i = 1;
    for (; i < s.n && s.p[i] != '"'; i++) {
        if (s.p[i] == '\\') {
            if (++i == s.n || (s.p[i] != '"' && s.p[i] != '\\'))
                return weft_error_set(self->err, WEFT_E_USER,
                                      "in quotes, a backslash is only allowed before \" or \\: "
                                      "write \\\\ for a backslash");
        }
        self->scratch[n++] = s.p[i];
    }
    if (i >= s.n) return weft_error_set(self->err, WEFT_E_USER, "a value's closing quote is missing");
    self->scratch[n] = '\0';
    s = (span){s.p + i, s.n - i};
    if (trim_span(without_comment(s)).n != 1)
        return weft_error_set(self->err, WEFT_E_USER,
                              "text follows a value's closing quote: write \\\" for a quote "
                              "inside quotes");
    return WEFT_OK;
}

/* Copies the value of inih's current line to scratch. */
static weft_status read_value(reader *self) {
    const span raw = {self->value, self->value_n};
    span s = trim_span(raw);
    if (s.n > 0 && *s.p == '"') return read_quoted(self, s);
    s = trim_span(without_comment(raw));
    memcpy(self->scratch, s.p, s.n);
    self->scratch[s.n] = '\0';
    return WEFT_OK;
}

/* inih's handler: returns 0 on error. */
static int take_key_line(void *user, const char *section, const char *name, const char *value) {
    reader *self = user;
    (void)value; /* empty: see the file comment */
    if (*section == '\0')
        self->status = weft_error_set(self->err, WEFT_E_USER, "key %.60s precedes the first [section]", name);
    else if (*name == '\0') self->status = weft_error_set(self->err, WEFT_E_USER, "a key's name is missing before =");
    else self->status = read_value(self);
    if (self->status == WEFT_OK)
        self->status = self->visit(self->context, section, name, self->scratch, self->line, self->err);
    return self->status == WEFT_OK;
}

weft_status weft_ini_parse(weft_ini_visit *visit, void *context, const char *name, const char *text, size_t n,
                           weft_error *err) {
    weft_error local = WEFT_ERROR_INIT;
    reader self = {visit, context, text, n, 0, 0, NULL, 0, weft_alloc(n + 1, 1), WEFT_OK, err == NULL ? &local : err};
    int line = 0;
    line = ini_parse_stream(next_line, &self, take_key_line, &self);
    if (self.status == WEFT_OK && line < 0)
        self.status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory left to read it", name);
    else if (self.status == WEFT_OK && line > 0)
        self.status = weft_error_set(err, WEFT_E_USER, "%s:%d: neither [section] nor key = value", name, line);
    else if (self.status != WEFT_OK) (void)weft_error_prefix(err, "%s:%ld: ", name, self.line);
    free(self.scratch);
    return self.status;
}

static bool needs_quotes(const char *value) {
    const span all = {value, strlen(value)};
    return all.n == 0 || *value == '"' || is_comment(all) || trim_span(all).n != all.n ||
           without_comment(all).n != all.n;
}

void weft_ini_print(FILE *file, const char *key, const char *value) {
    if (!needs_quotes(value)) {
        (void)fprintf(file, "%s = %s\n", key, value);
        return;
    }
    (void)fprintf(file, "%s = \"", key);
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\') (void)fputc('\\', file);
        (void)fputc(*p, file);
    }
    (void)fprintf(file, "\"\n");
}
