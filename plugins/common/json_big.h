/* json_big.h: strict JSON with integers of any size. Jansson is limited to 64 bits. A larger number loads as a string
 * of U+0000 and its digits, and is dumped as a number again. An input string of this form is dumped as a number,
 * too. */
#ifndef WEFT_PLUGINS_COMMON_JSON_BIG_H
#define WEFT_PLUGINS_COMMON_JSON_BIG_H

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_BIG_LEAST = 19 /* shortest digits that may exceed 64 bits */ };

/* Returns nonzero if the value is such a string. */
static inline int json_big_is(const json_t *value) {
    const char *text = json_string_value(value);
    const size_t n = json_string_length(value), sign = n > 1 && text[1] == '-';
    return n > JSON_BIG_LEAST + sign && text[0] == '\0' && strspn(text + 1 + sign, "0123456789") == n - 1 - sign;
}

/* Returns the end of the string that begins at `at` with its quote. */
static inline size_t json_big_string_end(const char *text, size_t n, size_t at) {
    for (at++; at < n && text[at] != '"'; at++) at += text[at] == '\\';
    return at < n ? at + 1 : n;
}

/* Returns the length of the integer beyond 64 bits at `at`; 0: another value. */
static inline size_t json_big_number(const char *text, size_t n, size_t at) {
    char digits[JSON_BIG_LEAST + 2] = "";
    const size_t sign = text[at] == '-';
    size_t end = at + sign;
    while (end < n && text[end] >= '0' && text[end] <= '9') end++;
    if (end - at < JSON_BIG_LEAST + sign || (end < n && strchr(".eE", text[end]) != NULL)) return 0;
    if (text[at + sign] == '0') return 0; /* not JSON */
    if (end - at >= sizeof digits) return end - at;
    memcpy(digits, text + at, end - at);
    errno = 0;
    (void)strtoll(digits, NULL, 10);
    return errno == ERANGE ? end - at : 0;
}

/* Returns nonzero if the text has no byte order mark and no NUL byte, which jansson accepts after a number. Otherwise
 * fills *why. */
static inline int json_big_is_text(const char *text, size_t n, json_error_t *why) {
    const char *nul = memchr(text, 0, n), *line = text;
    const int has_mark = n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0;
    memset(why, 0, sizeof *why);
    why->line = 1;
    for (const char *at = text; !has_mark && nul != NULL && at < nul; at++) {
        why->line += *at == '\n';
        if (*at == '\n') line = at + 1;
    }
    why->column = has_mark || nul == NULL ? 1 : (int)(nul - line) + 1;
    (void)snprintf(why->text, sizeof why->text, "%s", has_mark ? "a byte order mark (EF BB BF)" : "a NUL byte");
    return !has_mark && nul == NULL;
}

/* Loads JSON as json_loadb does, but also rejects NUL bytes and a byte order mark. */
static inline json_t *json_big_load(const char *text, size_t n, size_t flags, json_error_t *why) {
    static const char mark[] = "\"\\u0000";
    json_t *out = json_big_is_text(text, n, why) ? json_loadb(text, n, flags, why) : NULL;
    char *copy = NULL;
    size_t used = 0;
    if (out != NULL || json_error_code(why) != json_error_numeric_overflow) return out;
    copy = malloc(n + n / JSON_BIG_LEAST * sizeof mark + 1);
    for (size_t at = 0, length = 0; copy != NULL && at < n; at += length) {
        const size_t big = text[at] == '-' || (text[at] >= '0' && text[at] <= '9') ? json_big_number(text, n, at) : 0;
        length = text[at] == '"' ? json_big_string_end(text, n, at) - at : big > 0 ? big : 1;
        if (big == 0 && length == 1 && strchr("-+.0123456789eE", text[at]) != NULL && text[at] != '\0') {
            while (at + length < n && text[at + length] != '\0' && strchr("-+.0123456789eE", text[at + length]) != NULL)
                length++;
        }
        if (big > 0) memcpy(copy + used, mark, sizeof mark - 1);
        used += big > 0 ? sizeof mark - 1 : 0;
        memcpy(copy + used, text + at, length);
        used += length;
        if (big > 0) copy[used++] = '"';
    }
    if (copy != NULL) out = json_loadb(copy, used, flags | JSON_ALLOW_NUL, why);
    free(copy);
    return out;
}

/* Dumps JSON as json_dumps does; the caller frees the result. */
static inline char *json_big_dump(const json_t *value, size_t flags) {
    static const char mark[] = "\"\\u0000";
    char *text = json_dumps(value, flags);
    const size_t n = text == NULL ? 0 : strlen(text);
    size_t used = 0;
    if (text == NULL || strstr(text, mark) == NULL) return text;
    for (size_t at = 0, length = 0; at < n; at += length) {
        const char *digits = text + at + sizeof mark - 1;
        length = text[at] == '"' ? json_big_string_end(text, n, at) - at : 1;
        if (length >= sizeof mark + JSON_BIG_LEAST && memcmp(text + at, mark, sizeof mark - 1) == 0 &&
            strspn(digits + (digits[0] == '-'), "0123456789") + (digits[0] == '-') == length - sizeof mark) {
            memmove(text + used, digits, length - sizeof mark);
            used += length - sizeof mark;
        } else {
            memmove(text + used, text + at, length);
            used += length;
        }
    }
    text[used] = '\0';
    return text;
}

#endif
