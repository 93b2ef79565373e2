/* lex.c: splits a template into data and the tokens of its tags. Implements trim_blocks (removes the line end after a
 * block or comment) and lstrip_blocks (removes blanks before one that starts a line). */
#include "syntax.h"

#include <stdlib.h>

typedef struct lexer {
    jinja_template *self;
    weft_error *err;
    char *source; /* line ends are \n, the last one is removed; NUL-terminated */
    size_t n, at;
    int line;
    bool line_starting; /* the last match ended a line, or nothing was matched yet */
    jinja_token *tokens;
    size_t n_tokens, capacity;
    bool failed;
} lexer;

static bool fail(lexer *l, const char *what) {
    l->failed = true;
    return jinja_fail(l->err, l->self, l->line, "%s", what);
}

static jinja_token *add(lexer *l, int32_t kind, const char *text, size_t n) {
    jinja_token *token = NULL;
    char *copy = jinja_copy(&l->self->arena, text, n);
    if (l->n_tokens == l->capacity)
        l->tokens = jinja_grow(&l->self->arena, l->tokens, l->n_tokens, &l->capacity, 1, sizeof *l->tokens);
    if (copy == NULL || l->tokens == NULL) {
        l->failed = true;
        return NULL;
    }
    token = &l->tokens[l->n_tokens++];
    token->kind = kind;
    token->line = l->line;
    token->text = copy;
    token->n = n;
    return token;
}

static void advance(lexer *l, size_t to) {
    for (; l->at < to; l->at++) l->line += l->source[l->at] == '\n';
}

static bool looks(const lexer *l, size_t at, const char *text) {
    return strncmp(l->source + at, text, strlen(text)) == 0;
}

static size_t skip_spaces(const lexer *l, size_t at) {
    int32_t point = 0;
    while (at < l->n) {
        const size_t n = jinja_next(l->source + at, l->n - at, &point);
        if (!jinja_is_space(point)) break;
        at += n;
    }
    return at;
}

/* Returns the end of the data that begins at `from` and precedes the tag at `tag`. sign: third character of the tag. */
static size_t data_end(const lexer *l, size_t from, size_t tag, char sign, bool is_print) {
    size_t end = tag, begin = tag;
    int32_t point = 0;
    if (sign == '-') {
        while (end > from) {
            const size_t back = jinja_back(l->source, from, end, &point);
            if (!jinja_is_space(point)) break;
            end = back;
        }
        return end;
    }
    if (sign == '+' || is_print) return end;
    while (begin > from && l->source[begin - 1] != '\n') begin--;
    if (begin == from && !l->line_starting) return end;
    return skip_spaces(l, begin) >= tag ? begin : end;
}

/* Matches a tag's end at `at`. "-" removes all following white space. The end of a block or comment removes one line
 * end, unless it has a "+". */
static bool tag_end(const lexer *l, size_t at, const char *close, bool trims, size_t *next) {
    const bool signed_end = (l->source[at] == '-' || (l->source[at] == '+' && trims)) && looks(l, at + 1, close);
    if (!signed_end && !looks(l, at, close)) return false;
    *next = at + signed_end + 2;
    if (signed_end && l->source[at] == '-') *next = skip_spaces(l, *next);
    else if (!signed_end && trims && l->source[*next] == '\n') ++*next;
    return true;
}

static void set_position(lexer *l, size_t next) {
    l->line_starting = next > 0 && l->source[next - 1] == '\n';
    advance(l, next);
}

static size_t signed_tag(const lexer *l, size_t at) {
    return at + 2 + (l->source[at + 2] == '-' || l->source[at + 2] == '+');
}

static bool lex_comment(lexer *l) {
    size_t next = 0;
    for (size_t at = l->at + 2; at < l->n; at++) {
        if (!tag_end(l, at, "#}", true, &next)) continue;
        set_position(l, next);
        return true;
    }
    return fail(l, "a comment {# is not closed by #}");
}

/* Matches a {% raw %} tag; *body: offset of its body. */
static bool at_raw(const lexer *l, size_t *body) {
    size_t at = skip_spaces(l, signed_tag(l, l->at));
    if (!looks(l, at, "raw")) return false;
    return tag_end(l, skip_spaces(l, at + 3), "%}", false, body);
}

static bool lex_raw(lexer *l, size_t body) {
    size_t next = 0;
    set_position(l, body);
    for (size_t at = body; at < l->n; at++) {
        size_t word = 0;
        if (!looks(l, at, "{%")) continue;
        word = skip_spaces(l, signed_tag(l, at));
        if (!looks(l, word, "endraw") || !tag_end(l, skip_spaces(l, word + 6), "%}", true, &next)) continue;
        (void)add(l, TOKEN_DATA, l->source + body, data_end(l, body, at, l->source[at + 2], false) - body);
        set_position(l, next);
        return !l->failed;
    }
    return fail(l, "{% raw %} is not closed by {% endraw %}");
}

static bool is_name(char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

/* Decodes \xHH, \uHHHH or \UHHHHHHHH. Returns false for other escapes. */
static bool hex_escape(const char *at, size_t n, size_t *used, unsigned long *code) {
    const size_t digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    char text[12], *end = NULL;
    if (digits == 0 || n < digits + 1) return false;
    memcpy(text, at + 1, digits);
    text[digits] = '\0';
    *code = strtoul(text, &end, 16);
    *used = digits + 1;
    return end == text + digits && *code <= 0x10FFFF && (*code < 0xD800 || *code > 0xDFFF);
}

static bool add_string(lexer *l, size_t begin, size_t end) {
    static const char named[] = "n\nt\tr\rb\bf\fa\av\v\\\\''\"\"";
    jinja_token *token = add(l, TOKEN_STRING, l->source + begin, end - begin); /* escapes only shrink */
    char *to = token == NULL ? NULL : (char *)(uintptr_t)token->text;
    if (token == NULL) return false;
    for (size_t i = begin; i < end; i++) {
        const char *pair = named, next = l->source[i + 1];
        size_t used = 0;
        unsigned long code = 0;
        if (l->source[i] != '\\') {
            *to++ = l->source[i];
            continue;
        }
        while (*pair != '\0' && *pair != next) pair += 2;
        if (next == '\n') used = 1;
        else if (*pair != '\0') {
            *to++ = pair[1];
            used = 1;
        } else if (hex_escape(l->source + i + 1, end - i - 1, &used, &code)) to += jinja_put_point(to, (int64_t)code);
        else if (next >= '0' && next <= '7') {
            for (; used < 3 && l->source[i + 1 + used] >= '0' && l->source[i + 1 + used] <= '7'; used++)
                code = code * 8 + (unsigned long)(l->source[i + 1 + used] - '0');
            to += jinja_put_point(to, (int64_t)code);
        } else if (next == 'x' || next == 'u' || next == 'U' || next == 'N')
            return fail(l, "a string has an invalid escape \\x, \\u, \\U or \\N");
        else *to++ = '\\';
        i += used;
    }
    *to = '\0';
    token->n = (size_t)(to - token->text);
    return true;
}

static bool lex_string(lexer *l) {
    const char quote = l->source[l->at];
    size_t end = l->at + 1;
    while (end < l->n && l->source[end] != quote) end += l->source[end] == '\\' ? 2 : 1;
    if (end >= l->n) return fail(l, "a string is not closed");
    if (!add_string(l, l->at + 1, end)) return false;
    advance(l, end + 1);
    return true;
}

/* Reads 0x1f, 0o17 or 0b11; `base` is that of the letter. */
static bool lex_prefixed(lexer *l, int base) {
    char text[72];
    size_t n = 0, at = l->at + 2;
    jinja_token *token = NULL;
    for (; n + 1 < sizeof text && (is_name(l->source[at], false)); at++)
        if (l->source[at] != '_') text[n++] = l->source[at];
    text[n] = '\0';
    token = add(l, TOKEN_INT, text, n);
    if (token == NULL) return false;
    token->number = jinja_int(strtoll(token->text, NULL, base));
    if (token->number.as.i == INT64_MAX) return fail(l, "a number with a prefix exceeds 63 bits");
    advance(l, at);
    return true;
}

static bool lex_number(lexer *l) {
    char text[64];
    size_t n = 0, at = l->at;
    bool real = false;
    jinja_token *token = NULL;
    const char prefix = l->source[at] == '0' ? (char)(l->source[at + 1] | 0x20) : '\0';
    if (prefix == 'x' || prefix == 'o' || prefix == 'b')
        return lex_prefixed(l, prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2);
    for (; n + 1 < sizeof text; at++) {
        const char c = l->source[at], next = l->source[at + 1];
        const bool digit = next >= '0' && next <= '9';
        if (c >= '0' && c <= '9') text[n++] = c;
        else if (c == '_' && digit) continue;
        else if (c == '.' && digit && !real) text[n++] = c, real = true;
        else if ((c == 'e' || c == 'E') && (digit || next == '-' || next == '+') && n > 0) {
            text[n++] = c;
            real = true;
            if (!digit) text[n++] = l->source[++at];
        } else break;
    }
    text[n] = '\0';
    if (n + 1 == sizeof text) return fail(l, "a number has more than 62 digits");
    token = add(l, real ? TOKEN_FLOAT : TOKEN_INT, text, n);
    if (token == NULL) return false;
    token->number = real ? jinja_float(strtod(text, NULL)) : jinja_integer(&l->self->arena, token->text, n);
    if (real && token->number.as.f > 1.7976931348623157e308) return fail(l, "a number is too large");
    advance(l, at);
    return true;
}

static bool lex_sign(lexer *l) {
    static const char *const signs[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[",
                                        "]",  "(",  ")",  "{",  "}",  "<",  ">", "=", ".", ":", "|", ",", ";"};
    char message[80];
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        if (!looks(l, l->at, signs[i])) continue;
        if (add(l, TOKEN_SIGN, signs[i], strlen(signs[i])) == NULL) return false;
        advance(l, l->at + strlen(signs[i]));
        return true;
    }
    (void)snprintf(message, sizeof message, "unexpected character %s%c%s in a tag",
                   (unsigned char)l->source[l->at] < 0x21 || (unsigned char)l->source[l->at] > 0x7E ? "(byte) " : "",
                   (unsigned char)l->source[l->at] < 0x21 || (unsigned char)l->source[l->at] > 0x7E ? '?'
                                                                                                    : l->source[l->at],
                   "");
    return fail(l, message);
}

static bool lex_one(lexer *l) {
    const char c = l->source[l->at];
    size_t end = l->at;
    if (c == '"' || c == '\'') return lex_string(l);
    if (c >= '0' && c <= '9') return lex_number(l);
    if (!is_name(c, true)) return lex_sign(l);
    while (is_name(l->source[end], false)) end++;
    if (add(l, TOKEN_NAME, l->source + l->at, end - l->at) == NULL) return false;
    advance(l, end);
    return true;
}

/* Reads the tokens between {{ and }}, or {% and %}. Brackets may contain an end tag. */
static bool lex_tag(lexer *l, bool is_print) {
    const char *close = is_print ? "}}" : "%}";
    int brackets = 0;
    (void)add(l, is_print ? TOKEN_PRINT : TOKEN_BLOCK, "", 0);
    advance(l, signed_tag(l, l->at));
    while (!l->failed) {
        size_t next = 0;
        char c = '\0';
        advance(l, skip_spaces(l, l->at));
        if (l->at >= l->n) return fail(l, is_print ? "{{ is not closed by }}" : "{% is not closed by %}");
        if (brackets == 0 && tag_end(l, l->at, close, !is_print, &next)) {
            (void)add(l, is_print ? TOKEN_PRINT_END : TOKEN_BLOCK_END, close, 2);
            set_position(l, next);
            return !l->failed;
        }
        c = l->source[l->at];
        if (!lex_one(l)) return false;
        brackets += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
        if (brackets < 0) return fail(l, "a bracket is closed but not opened");
    }
    return false;
}

static bool lex_next(lexer *l) {
    size_t tag = l->at, body = 0, end = 0;
    while (tag < l->n &&
           !(l->source[tag] == '{' && strchr("{%#", l->source[tag + 1]) != NULL && l->source[tag + 1] != '\0'))
        tag++;
    end = tag >= l->n ? l->n : data_end(l, l->at, tag, l->source[tag + 2], l->source[tag + 1] == '{');
    if (end > l->at) (void)add(l, TOKEN_DATA, l->source + l->at, end - l->at);
    advance(l, tag);
    if (tag >= l->n) return !l->failed;
    if (l->source[tag + 1] == '#') return lex_comment(l);
    if (l->source[tag + 1] == '%' && at_raw(l, &body)) return lex_raw(l, body);
    return lex_tag(l, l->source[tag + 1] == '{');
}

/* Converts line ends to \n and removes the last one. */
static bool take_source(lexer *l, const char *source, size_t n) {
    l->source = jinja_take(&l->self->arena, n + 16);
    if (l->source == NULL) return false;
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n') continue;
        l->source[l->n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (l->n > 0 && l->source[l->n - 1] == '\n') l->source[--l->n] = '\0';
    return true;
}

jinja_token *jinja_lex(jinja_template *self, const char *source, size_t n, weft_error *err) {
    lexer l = {.self = self, .err = err, .line = 1, .line_starting = true};
    if (memchr(source, '\0', n) != NULL) {
        (void)jinja_fail(err, self, 1, "the template contains a NUL byte");
        return NULL;
    }
    if (!take_source(&l, source, n)) return NULL;
    while (l.at < l.n && !l.failed) (void)lex_next(&l);
    if (!l.failed) (void)add(&l, TOKEN_END, "", 0);
    return l.failed ? NULL : l.tokens;
}
