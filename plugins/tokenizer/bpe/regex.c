/* regex.c: from the dialect that tokenizer.json is written for (Oniguruma, Ruby's syntax, UTF-8) to PCRE2's.
 *
 * The two agree on most of what tokenizers use. What they read differently is spelled out (\s, \d, which PCRE2 would
 * take from other tables or from ASCII) or refused with a reason: nested sets and && in a character class, {n,m}+,
 * {,n}, options other than i, names of scripts, \w, \b, \h and other escapes. Letters and numbers (\p{L}, \p{N}) are
 * those of the PCRE2 in use: scripts that were added to Unicode after its tables may be cut elsewhere.
 */
#include "pattern.h"

/* White_Space and its complement as members of a class; found equal to \s on every code point. */
#define SPACE                                                                                                          \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NO_SPACE                                                                                                       \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"                    \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

typedef struct reader {
    bpe_list *out;
    const char *at;
    const char *end;
    bool in_class;
    const char *why;
} reader;

static void put(reader *self, const char *text) {
    bpe_list_add(self->out, text, strlen(text));
}

/* n characters as they stand. */
static void copy(reader *self, size_t n) {
    const size_t left = (size_t)(self->end - self->at);
    if (n > left) n = left;
    bpe_list_add(self->out, self->at, n);
    self->at += n;
}

static bool starts(const reader *self, const char *text) {
    const size_t n = strlen(text);
    return (size_t)(self->end - self->at) >= n && memcmp(self->at, text, n) == 0;
}

static bool one_of(char c, const char *set) {
    return c != 0 && strchr(set, c) != NULL;
}

/* \p{L}, \P{Lu}, \p{^N}: general categories. Names of scripts are looked up differently. */
static void property(reader *self) {
    const char *at = self->at + 2, *end = self->end;
    if (at < end && *at == '{') at++;
    else end = at;
    if (at < end && *at == '^') at++;
    if (at < end && one_of(*at, "LMNPSZC")) at++;
    else end = at;
    if (at < end && *at >= 'a' && *at <= 'z') at++;
    if (at < end && *at == '}') copy(self, (size_t)(at - self->at) + 1);
    else self->why = "a property other than general categories such as \\p{L} and \\p{Lu}";
}

static bool is_hex(char c) {
    return one_of(c, "0123456789abcdefABCDEF");
}

/* \x{H...} is a character in both dialects; \xHH above 7F is a byte of one in the other dialect. */
static void hexadecimal(reader *self) {
    const char *at = self->at + 2;
    if (self->end - at >= 2 && one_of(*at, "01234567") && is_hex(at[1])) {
        copy(self, 4);
        return;
    }
    if (at < self->end && *at == '{') at++;
    while (at < self->end && is_hex(*at)) at++;
    if (at < self->end && *at == '}' && self->at[2] == '{') copy(self, (size_t)(at - self->at) + 1);
    else self->why = "an \\x other than \\x00 to \\x7F and \\x{...}";
}

static void unicode_escape(reader *self) {
    if (self->end - self->at < 6) {
        self->why = "\\u needs four hexadecimal digits";
        return;
    }
    put(self, "\\x{");
    self->at += 2;
    copy(self, 4);
    put(self, "}");
}

static void escape(reader *self) {
    const char c = self->end - self->at < 2 ? 0 : self->at[1];
    const bool alone = !self->in_class;
    if (c == 's') put(self, alone ? "[" SPACE "]" : SPACE);
    else if (c == 'S') put(self, alone ? "[" NO_SPACE "]" : NO_SPACE);
    else if (c == 'd') put(self, "\\p{Nd}");
    else if (c == 'D') put(self, "\\P{Nd}");
    else if (one_of(c, "pP")) property(self);
    else if (c == 'x') hexadecimal(self);
    else if (c == 'u') unicode_escape(self);
    else if (one_of(c, "rnt") || (c > ' ' && c < 0x7f && one_of(c, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")))
        copy(self, 2);
    else self->why = "an escape other than \\s \\S \\d \\D \\p \\P \\x \\u \\r \\n \\t and escaped punctuation";
    if (one_of(c, "sSdD")) self->at += 2;
}

static void class_member(reader *self) {
    if (*self->at == '\\') escape(self);
    else if (*self->at == '[') self->why = "a set inside a set";
    else if (starts(self, "&&")) self->why = "&& inside a set";
    else {
        if (*self->at == ']') self->in_class = false;
        copy(self, 1);
    }
}

static void open_class(reader *self) {
    self->in_class = true;
    copy(self, starts(self, "[^") ? 2 : 1);
    if (self->at < self->end && *self->at == ']') copy(self, 1); /* the first one is a member */
}

static void group(reader *self) {
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    if (!starts(self, "(?") && !starts(self, "(*")) {
        copy(self, 1);
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!starts(self, known[i])) continue;
        copy(self, strlen(known[i]));
        return;
    }
    self->why = "a group other than (?: (?= (?! (?<= (?<! (?> (?i: (?-i:";
}

static void brace(reader *self) {
    const char *close = memchr(self->at, '}', (size_t)(self->end - self->at));
    const size_t n = close == NULL ? 0 : (size_t)(close - self->at) + 1;
    if (n < 3 || self->at[1] == ',') self->why = "{ that does not begin {n}, {n,} or {n,m}";
    for (size_t i = 1; i + 1 < n; i++) {
        if (!one_of(self->at[i], "0123456789,")) self->why = "{ that does not begin {n}, {n,} or {n,m}";
    }
    if (self->why != NULL) return;
    copy(self, n);
    if (self->at < self->end && one_of(*self->at, "+?*")) self->why = "+, ? or * behind {n,m}";
}

bool bpe_regex_translate(bpe_list *out, const char **why, const char *regex, size_t n) {
    reader self = {out, regex, regex + n, false, NULL};
    if (n >= 4 && memcmp(regex, "(?i)", 4) == 0) copy(&self, 4); /* elsewhere its reach differs */
    while (self.at < self.end && self.why == NULL) {
        if (self.in_class) class_member(&self);
        else if (*self.at == '\\') escape(&self);
        else if (*self.at == '[') open_class(&self);
        else if (*self.at == '(') group(&self);
        else if (*self.at == '{') brace(&self);
        else if (*self.at == '^') self.why = "^ outside of a set";
        else copy(&self, 1);
    }
    *why = self.why;
    return self.why == NULL;
}
