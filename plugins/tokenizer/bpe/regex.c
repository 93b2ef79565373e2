/* regex.c: translates a pattern of tokenizer.json (Oniguruma, Ruby's syntax, UTF-8) to PCRE2.
 *
 * PCRE2 matches 8-bit units, not UTF-8. An ASCII character is its own unit; any other character is represented by the
 * number of its class, 80 to FF. A class contains the characters that the pattern cannot distinguish: one general
 * category, and the same set of the pattern's ranges. So categories come from the table of unicode.h, independent of
 * PCRE2's version of Unicode. Constructs with different meanings in the two dialects are errors with a reason: nested
 * sets and && in a character class, {n,m}+, {,n}, options other than i, names of scripts, \w, \b, \h and other
 * escapes. */
#include "pattern.h"
#include "unicode.h"

#include <stdlib.h>

enum { MOST_RANGES = 32, MOST_DEPTH = 64, NEXT_LINE = 0x85, LONG_S = 0x17F, KELVIN = 0x212A };

typedef struct byte_set {
    bool has[256];
} byte_set;

typedef struct range {
    int32_t low, high; /* of characters outside ASCII */
} range;

typedef struct class {
    int32_t category;
    uint32_t ranges; /* bit i: its characters are in range i */
} class;

typedef struct reader {
    bpe_list *out;
    const char *at;
    const char *end;
    bool in_class, caseless;
    bool outer[MOST_DEPTH]; /* caseless, outside of each open group */
    int depth;
    bool collects; /* first of two passes: collect the ranges, ignore `out` */
    range ranges[MOST_RANGES];
    class classes[128];
    size_t n_ranges, n_classes;
    const char *why;
} reader;

/* ---- classes ---- */

static void add_range(reader *self, int32_t low, int32_t high) {
    for (size_t i = 0; i < self->n_ranges; i++)
        if (self->ranges[i].low == low && self->ranges[i].high == high) return;
    if (self->n_ranges == MOST_RANGES) self->why = "more than 29 ranges of characters outside ASCII";
    else self->ranges[self->n_ranges++] = (range){low, high};
}

static unsigned char class_of(reader *self, int32_t category, uint32_t ranges) {
    size_t i = 0;
    while (i < self->n_classes && (self->classes[i].category != category || self->classes[i].ranges != ranges)) i++;
    if (i == 128) {
        self->why = "ranges that cut the characters outside ASCII into more than 128 classes";
        return 0xff;
    }
    if (i == self->n_classes) self->classes[self->n_classes++] = (class){category, ranges};
    return (unsigned char)(0x80 + i);
}

/* Assigns a class to every character. */
static void classify(reader *self, unsigned char *units) {
    int32_t last = 0;
    for (int32_t point = 0; point < 0x80; point++) units[point] = (unsigned char)point;
    for (int32_t point = 0x80; point < BPE_N_POINTS && self->why == NULL; point = last + 1) {
        uint32_t ranges = 0;
        last = bpe_category_end(point);
        for (size_t i = 0; i < self->n_ranges; i++) {
            const range *one = &self->ranges[i];
            if (one->low <= point && point <= one->high) ranges |= 1u << i;
            if (one->low > point && one->low <= last) last = one->low - 1;
            if (one->high >= point && one->high < last) last = one->high;
        }
        memset(units + point, class_of(self, bpe_category(point), ranges), (size_t)(last - point) + 1);
    }
}

static void set_range(const reader *self, byte_set *set, int32_t low, int32_t high) {
    for (int32_t i = low; i <= high && i < 0x80; i++) set->has[i] = true;
    for (size_t r = 0; r < self->n_ranges; r++)
        for (size_t i = 0; i < self->n_classes; i++)
            if (self->ranges[r].low >= low && self->ranges[r].high <= high && (self->classes[i].ranges >> r & 1) != 0)
                set->has[0x80 + i] = true;
}

/* name: "L" or "Lu". */
static void set_category(const reader *self, byte_set *set, const char *name) {
    for (int32_t i = 0; i < 0x80; i++)
        if (bpe_category_is(bpe_category(i), name)) set->has[i] = true;
    for (size_t i = 0; i < self->n_classes; i++)
        if (bpe_category_is(self->classes[i].category, name)) set->has[0x80 + i] = true;
}

static void set_space(const reader *self, byte_set *set) {
    set_category(self, set, "Z");
    set_range(self, set, 9, 13);
    set_range(self, set, NEXT_LINE, NEXT_LINE);
}

static void invert(byte_set *set) {
    for (int i = 0; i < 256; i++) set->has[i] = !set->has[i];
}

/* ---- output ---- */

static void put(reader *self, const char *text) {
    bpe_list_add(self->out, text, strlen(text));
}

static void put_set(reader *self, const byte_set *set) {
    char text[32];
    if (!self->in_class) put(self, "[");
    for (int i = 0, last = 0; i < 256; i = last + 1) {
        last = i;
        if (!set->has[i]) continue;
        while (last < 255 && set->has[last + 1]) last++;
        (void)snprintf(text, sizeof text, last > i ? "\\x%02x-\\x%02x" : "\\x%02x", (unsigned)i, (unsigned)last);
        put(self, text);
    }
    if (!self->in_class) put(self, "]");
}

/* Adds a character or range. A caseless pattern must also match the two characters outside ASCII with an ASCII letter
 * as their other case; PCRE2 handles ASCII only. */
static void put_range(reader *self, int32_t low, int32_t high) {
    byte_set set = {{false}};
    if (low > high) self->why = "a range whose end comes before its beginning";
    if (high >= 0x80 && self->caseless) self->why = "a character outside ASCII where case is ignored";
    if (high >= 0x80 && self->collects) add_range(self, low < 0x80 ? 0x80 : low, high);
    set_range(self, &set, low, high);
    if (self->caseless && (set.has['s'] || set.has['S'])) set_range(self, &set, LONG_S, LONG_S);
    if (self->caseless && (set.has['k'] || set.has['K'])) set_range(self, &set, KELVIN, KELVIN);
    put_set(self, &set);
}

/* Copies n characters unchanged. */
static void copy(reader *self, size_t n) {
    const size_t left = (size_t)(self->end - self->at);
    if (n > left) n = left;
    bpe_list_add(self->out, self->at, n);
    self->at += n;
}

/* ---- input ---- */

static bool starts(const reader *self, const char *text) {
    const size_t n = strlen(text);
    return (size_t)(self->end - self->at) >= n && memcmp(self->at, text, n) == 0;
}

static bool one_of(char c, const char *set) {
    return c != 0 && strchr(set, c) != NULL;
}

/* Translates \p{L}, \P{Lu} and \p{^N}: general categories. Other names are errors. */
static void property(reader *self) {
    bool inverted = self->at[1] == 'P';
    const char *at = self->at + 2, *end = self->end;
    char name[3] = "";
    byte_set set = {{false}};
    if (at < end && *at == '{') at++;
    else end = at;
    if (at < end && *at == '^') {
        inverted = !inverted;
        at++;
    }
    if (at < end && one_of(*at, "LMNPSZC")) name[0] = *at++;
    else end = at;
    if (at < end && *at >= 'a' && *at <= 'z') name[1] = *at++;
    set_category(self, &set, name);
    if (at >= end || *at != '}' || !bpe_category_known(name))
        self->why = "a property other than general categories such as \\p{L} and \\p{Lu}";
    else if (self->caseless && one_of(name[1], "ult") && name[0] == 'L')
        self->why = "\\p{Lu}, \\p{Ll} or \\p{Lt} where case is ignored";
    if (inverted) invert(&set);
    put_set(self, &set);
    self->at = at + 1;
}

static bool is_hex(char c) {
    return one_of(c, "0123456789abcdefABCDEF");
}

/* Reads \x{H...}, a character in both dialects. \xHH above 7F is a byte of a character in the other dialect. */
static int32_t hexadecimal(reader *self) {
    const char *at = self->at + 2;
    long value = 0;
    if (self->end - at >= 2 && one_of(*at, "01234567") && is_hex(at[1])) {
        const char digits[3] = {at[0], at[1], 0};
        self->at += 4;
        return (int32_t)strtol(digits, NULL, 16);
    }
    if (at < self->end && *at == '{') at++;
    for (; at < self->end && is_hex(*at) && value < BPE_N_POINTS; at++) {
        const char digit[2] = {*at, 0};
        value = 16 * value + strtol(digit, NULL, 16);
    }
    if (at >= self->end || *at != '}' || self->at[2] != '{' || value >= BPE_N_POINTS)
        self->why = "an \\x other than \\x00 to \\x7F and \\x{...}";
    self->at = at + 1;
    return (int32_t)value;
}

static int32_t unicode_escape(reader *self) {
    char digits[5] = "";
    for (int i = 0; i < 4 && self->end - self->at > 2 + i && is_hex(self->at[2 + i]); i++) digits[i] = self->at[2 + i];
    if (strlen(digits) < 4) self->why = "\\u needs four hexadecimal digits";
    self->at += 6;
    return (int32_t)strtol(digits, NULL, 16);
}

/* Reads one character or its escape. -1: not a single character, or `why` is set. */
static int32_t character(reader *self) {
    const char c = self->end - self->at < 2 ? 0 : self->at[1];
    int32_t point = -1;
    if (*self->at != '\\') {
        self->at += bpe_utf8(self->at, (size_t)(self->end - self->at), &point);
        return point;
    }
    if (c == 'x') return hexadecimal(self);
    if (c == 'u') return unicode_escape(self);
    if (c > ' ' && c < 0x7f && one_of(c, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")) point = c;
    if (one_of(c, "rnt")) point = c == 'r' ? '\r' : c == 'n' ? '\n' : '\t';
    if (point >= 0) self->at += 2;
    return point;
}

static void escape(reader *self) {
    const char c = self->end - self->at < 2 ? 0 : self->at[1];
    byte_set set = {{false}};
    if (one_of(c, "pP")) {
        property(self);
        return;
    }
    if (one_of(c, "sS")) set_space(self, &set);
    else if (one_of(c, "dD")) set_category(self, &set, "Nd");
    else {
        self->why = "an escape other than \\s \\S \\d \\D \\p \\P \\x \\u \\r \\n \\t and escaped punctuation";
        return;
    }
    if (one_of(c, "SD")) invert(&set);
    put_set(self, &set);
    self->at += 2;
}

static void single(reader *self) {
    const int32_t point = character(self);
    if (point < 0 && self->why == NULL) escape(self);
    else if (self->why == NULL) put_range(self, point, point);
}

static void class_member(reader *self) {
    int32_t low = -1, high = -1;
    if (*self->at == '[') self->why = "a set inside a set";
    else if (starts(self, "&&")) self->why = "&& inside a set";
    else if (*self->at == ']') {
        copy(self, 1);
        self->in_class = false;
    }
    if (self->why != NULL || !self->in_class) return;
    low = character(self);
    if (low < 0 && self->why == NULL) {
        escape(self);
        return;
    }
    high = low;
    if (self->why == NULL && self->end - self->at >= 2 && self->at[0] == '-' && self->at[1] != ']') {
        const char *dash = self->at++;
        high = *self->at == '[' || starts(self, "&&") ? -1 : character(self);
        if (high < 0) {
            self->at = dash;
            high = low;
        }
    }
    if (self->why == NULL) put_range(self, low, high);
}

static void open_class(reader *self) {
    copy(self, starts(self, "[^") ? 2 : 1);
    self->in_class = true;
    if (self->at < self->end && *self->at == ']') { /* a leading ] is a member */
        self->at++;
        put_range(self, ']', ']');
    }
}

static void group(reader *self) {
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    size_t n = 1, i = 0;
    if (starts(self, "(?") || starts(self, "(*")) {
        while (i < sizeof known / sizeof known[0] && !starts(self, known[i])) i++;
        if (i == sizeof known / sizeof known[0]) {
            self->why = "a group other than (?: (?= (?! (?<= (?<! (?> (?i: (?-i:";
            return;
        }
        n = strlen(known[i]);
    }
    if (self->depth == MOST_DEPTH) {
        self->why = "groups that are more than 64 deep";
        return;
    }
    self->outer[self->depth++] = self->caseless;
    if (starts(self, "(?i:")) self->caseless = true;
    if (starts(self, "(?-i:")) self->caseless = false;
    copy(self, n);
}

static void close_group(reader *self) {
    if (self->depth > 0) self->caseless = self->outer[--self->depth];
    copy(self, 1);
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

static void read_pattern(reader *self, const char *regex, size_t n) {
    self->at = regex;
    self->end = regex + n;
    bpe_list_clear(self->out);
    put(self, "(*LF)"); /* line end, regardless of PCRE2's build */
    self->caseless = n >= 4 && memcmp(regex, "(?i)", 4) == 0;
    if (self->caseless) copy(self, 4); /* inside a group its scope differs */
    while (self->at < self->end && self->why == NULL) {
        if (self->in_class) class_member(self);
        else if (*self->at == '\\' || (unsigned char)*self->at >= 0x80) single(self);
        else if (*self->at == '[') open_class(self);
        else if (*self->at == '(') group(self);
        else if (*self->at == ')') close_group(self);
        else if (*self->at == '{') brace(self);
        else if (*self->at == '^') self->why = "^ outside of a set";
        else if (self->caseless && one_of(*self->at, "sSkK")) single(self);
        else copy(self, 1);
    }
}

bool bpe_regex_translate(bpe_list *out, unsigned char *units, const char **why, const char *regex, size_t n) {
    reader first = {.out = out, .collects = true}, second = {.out = out};
    add_range(&first, NEXT_LINE, NEXT_LINE);
    add_range(&first, LONG_S, LONG_S);
    add_range(&first, KELVIN, KELVIN);
    read_pattern(&first, regex, n);
    if (first.why == NULL) classify(&first, units);
    memcpy(second.ranges, first.ranges, sizeof second.ranges);
    memcpy(second.classes, first.classes, sizeof second.classes);
    second.n_ranges = first.n_ranges;
    second.n_classes = first.n_classes;
    if (first.why == NULL) read_pattern(&second, regex, n);
    *why = first.why != NULL ? first.why : second.why;
    return *why == NULL;
}
