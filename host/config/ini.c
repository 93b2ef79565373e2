/* host/config/ini.c: see ini.h. */
#include "config/ini.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "config/value.h"

enum { LONGEST_SECTION = 49, LONGEST_KEY = 198 };

typedef struct reader {
    weft_ini_visit *visit;
    void *context;
    long line;
    char section[LONGEST_SECTION + 1]; /* "": none yet */
    char *value;                       /* with capacity for the complete text */
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

static weft_status read_section(reader *self, span s) {
    const char *close = memchr(s.p, ']', s.n);
    span name;
    if (close == NULL) return weft_error_set(self->err, WEFT_E_USER, "a section's line ends without ]");
    name = trim_span((span){s.p + 1, (size_t)(close - s.p) - 1});
    if (trim_span(without_comment((span){close, s.n - (size_t)(close - s.p)})).n != 1)
        return weft_error_set(self->err, WEFT_E_USER, "text follows [%.*s]: put a key on a line of its own",
                              (int)name.n, name.p);
    for (size_t i = 0; i < name.n; i++)
        if (!isalnum((unsigned char)name.p[i]) && strchr("_-.", name.p[i]) == NULL) name.n = 0;
    if (name.n == 0 || name.n > LONGEST_SECTION)
        return weft_error_set(self->err, WEFT_E_USER,
                              "a section's name is letters, digits, _, - and . in brackets, at most %d of them",
                              LONGEST_SECTION);
    (void)snprintf(self->section, sizeof self->section, "%.*s", (int)name.n, name.p);
    return self->visit(self->context, self->section, NULL, NULL, self->line, self->err);
}

/* Copies a quoted value, with at most a comment after it. s begins with the quote. */
static weft_status read_quoted(reader *self, span s) {
    size_t n = 0, i = 1;
    for (; i < s.n && s.p[i] != '"'; i++) {
        if (s.p[i] == '\\' && (++i == s.n || (s.p[i] != '"' && s.p[i] != '\\')))
            return weft_error_set(self->err, WEFT_E_USER,
                                  "in quotes, a backslash is only allowed before \" or \\: write \\\\ for a backslash");
        self->value[n++] = s.p[i];
    }
    if (i >= s.n) return weft_error_set(self->err, WEFT_E_USER, "a value's closing quote is missing");
    self->value[n] = '\0';
    if (trim_span(without_comment((span){s.p + i, s.n - i})).n != 1)
        return weft_error_set(self->err, WEFT_E_USER,
                              "text follows a value's closing quote: write \\\" for a quote inside quotes");
    return WEFT_OK;
}

static weft_status read_item(reader *self, span s) {
    char key[LONGEST_KEY + 1];
    size_t n = 0;
    span name, value;
    weft_status status = WEFT_OK;
    while (n < s.n && s.p[n] != '=' && s.p[n] != ':') n++;
    name = trim_span((span){s.p, n});
    if (n == s.n || without_comment(name).n != name.n)
        return weft_error_set(self->err, WEFT_E_USER, "'%.*s%s' is neither [section] nor key = value",
                              (int)(n < 60 ? n : 60), s.p, n > 60 ? "..." : "");
    if (n > LONGEST_KEY) return weft_error_set(self->err, WEFT_E_USER, "a key of %zu letters is too long", n);
    (void)snprintf(key, sizeof key, "%.*s", (int)name.n, name.p);
    if (self->section[0] == '\0')
        return weft_error_set(self->err, WEFT_E_USER, "key %.60s precedes the first [section]", key);
    if (name.n == 0) return weft_error_set(self->err, WEFT_E_USER, "a key's name is missing before =");
    value = trim_span((span){s.p + n + 1, s.n - n - 1});
    if (value.n > 0 && *value.p == '"') {
        status = read_quoted(self, value);
    } else {
        value = trim_span(without_comment((span){s.p + n + 1, s.n - n - 1})); /* a comment follows a blank */
        memcpy(self->value, value.p, value.n);
        self->value[value.n] = '\0';
    }
    return status == WEFT_OK ? self->visit(self->context, self->section, key, self->value, self->line, self->err)
                             : status;
}

static weft_status read_line(reader *self, span s) {
    if (self->line == 1 && s.n >= 3 && memcmp(s.p, "\xEF\xBB\xBF", 3) == 0) s.p += 3, s.n -= 3;
    if (s.n > 0 && s.p[s.n - 1] == '\r') s.n--;
    if (memchr(s.p, 0, s.n) != NULL)
        return weft_error_set(self->err, WEFT_E_USER,
                              "a NUL byte: this is no text file, or one in UTF-16; save it as UTF-8");
    if (!weft_text_is_clean(s.p, s.n))
        return weft_error_set(self->err, WEFT_E_USER,
                              "a control character, or a byte that is not UTF-8: save the file as UTF-8 text");
    s = trim_span(s);
    if (s.n == 0 || is_comment(s)) return WEFT_OK;
    return *s.p == '[' ? read_section(self, s) : read_item(self, s);
}

weft_status weft_ini_parse(weft_ini_visit *visit, void *context, const char *name, const char *text, size_t n,
                           weft_error *err) {
    reader self = {visit, context, 0, "", weft_alloc(n + 1, 1), err};
    weft_status status = WEFT_OK;
    for (size_t at = 0; at < n && status == WEFT_OK;) {
        const char *end = memchr(text + at, '\n', n - at);
        const span line = {text + at, end == NULL ? n - at : (size_t)(end - text) - at};
        at += line.n + 1;
        self.line++;
        status = read_line(&self, line);
    }
    free(self.value);
    return status == WEFT_OK ? status : weft_error_prefix(err, "%s:%ld: ", name, self.line);
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
