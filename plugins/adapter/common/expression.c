/* plugins/adapter/common/expression.c: see expression.h. */
#include "expression.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct expression {
    pcre2_code *code;
    pcre2_match_data *match;
};

/* ---- common syntax of Python and PCRE2 ---- */

/* Each ..._length function returns the number of characters at the text that have the same meaning in both; 0 if the
 * meanings differ. */

/* A letter after a backslash may be a class or a character in both, exist in only one (\h, \K, \Q, \p, \u), or differ
 * (\v). Numbers above 9 are groups or octals by different rules. */
static size_t escape_length(const char *text, const char *letters, bool refers) {
    const char c = text[1];
    if (c == 0) return 1; /* invalid in both */
    if (c == 'x') return isxdigit((unsigned char)text[2]) && isxdigit((unsigned char)text[3]) ? 4 : 0;
    if (isdigit((unsigned char)c)) return refers && c != '0' && !isdigit((unsigned char)text[2]) ? 2 : 0;
    return !isalpha((unsigned char)c) || strchr(letters, c) != NULL ? 2 : 0;
}

/* PCRE2 has named classes, [[:alpha:]]; Python reads them as characters. */
static size_t set_length(const char *text) {
    size_t n = 1;
    n += text[n] == '^';
    n += text[n] == ']';
    while (text[n] != 0 && text[n] != ']') {
        size_t one = 1;
        if (text[n] == '[' && text[n + 1] != 0 && strchr(":.=", text[n + 1]) != NULL) return 0;
        if (text[n] == '\\') one = escape_length(text + n, "bdDsSwWnrtfa", false);
        if (one == 0) return 0;
        n += one;
    }
    return n + (text[n] == ']');
}

/* Group openings. Python allows global flags only at the start; only PCRE2 has verbs (*...), recursion and
 * (?<name>...). */
static size_t group_length(const char *text) {
    static const char *const forms[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?P<", "(?P="};
    if (text[1] == '*') return 0;
    if (text[1] != '?') return 1;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strncmp(text, forms[i], strlen(forms[i])) == 0) return strlen(forms[i]);
    if (strspn(text + 2, "ims") > 0 && text[2 + strspn(text + 2, "ims")] == ':') return 3 + strspn(text + 2, "ims");
    return 0;
}

/* {3}, {3,} or {3,5}. Without the first number, or with spaces, only one of the two reads a count; the other reads
 * characters. */
static size_t count_length(const char *text) {
    size_t n = 1 + strspn(text + 1, "0123456789");
    if (n == 1) return 0;
    if (text[n] == ',') n += 1 + strspn(text + n + 1, "0123456789");
    return text[n] == '}' ? n + 1 : 0;
}

static size_t piece_length(const char *text) {
    switch (*text) {
    case '\\': return escape_length(text, "AbBdDsSwWZnrtfa", true);
    case '[': return set_length(text);
    case '(': return group_length(text);
    case '{': return count_length(text);
    default: return 1;
    }
}

/* Returns the first position that the two read differently, or NULL. Global flags, (?i), are allowed only at the
 * start. */
static const char *find_difference(const char *text, expression_form form) {
    const size_t flags = strncmp(text, "(?", 2) == 0 ? strspn(text + 2, "ims") : 0;
    if (form == EXPRESSION_WHOLE && flags > 0 && text[2 + flags] == ')') text += 3 + flags;
    while (*text != 0) {
        const size_t n = piece_length(text);
        if (n == 0) return text;
        text += n;
    }
    return NULL;
}

/* ---- compile and match ---- */

static expression *compile(const char *text, expression_form form, expression_fault *why) {
    const uint32_t options = PCRE2_UTF | PCRE2_ANCHORED | (form == EXPRESSION_WHOLE ? PCRE2_ENDANCHORED : 0u);
    expression *self = calloc(1, sizeof *self);
    PCRE2_UCHAR message[200] = {0};
    PCRE2_SIZE offset = 0;
    int code = 0;
    if (self != NULL)
        self->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &code, &offset, NULL);
    if (self != NULL && self->code != NULL) self->match = pcre2_match_data_create_from_pattern(self->code, NULL);
    if (self != NULL && self->match != NULL) return self;
    if (self != NULL && self->code == NULL) {
        (void)pcre2_get_error_message(code, message, sizeof message);
        (void)snprintf(why->text, sizeof why->text, "is no regular expression: %s", (const char *)message);
    } else {
        (void)snprintf(why->text, sizeof why->text, "cannot be read: no memory for it");
    }
    expression_close(self);
    return NULL;
}

/* Inserts PEFT's key unmodified into this pattern, as PEFT does: a parenthesis in the key may close the group. */
static expression *compile_end(const char *text, expression_fault *why) {
    const size_t size = strlen(text) + sizeof "(.*\\.)?()$";
    char *all = malloc(size);
    expression *self = NULL;
    (void)snprintf(why->text, sizeof why->text, "cannot be read: no memory for it");
    if (all == NULL) return NULL;
    (void)snprintf(all, size, "(.*\\.)?(%s)$", text);
    self = compile(all, EXPRESSION_END, why);
    free(all);
    return self;
}

expression *expression_open(const char *text, expression_form form, bool of_peft, expression_fault *why) {
    const char *other = of_peft ? find_difference(text, form) : NULL;
    if (other == NULL) return form == EXPRESSION_END ? compile_end(text, why) : compile(text, form, why);
    (void)snprintf(why->text, sizeof why->text,
                   "contains '%.16s', which Python's re treats differently, or which is not supported. Allowed: "
                   "literals, ., sets, groups, | and counts as {1,3}",
                   other);
    return NULL;
}

int expression_fits(const expression *self, const char *path) {
    const int found = pcre2_match(self->code, (PCRE2_SPTR)path, PCRE2_ZERO_TERMINATED, 0, 0, self->match, NULL);
    return found >= 0 ? 1 : found == PCRE2_ERROR_NOMATCH ? 0 : -1;
}

void expression_close(expression *self) {
    if (self == NULL) return;
    pcre2_match_data_free(self->match);
    pcre2_code_free(self->code);
    free(self);
}
