/* host/config/number.c: parses numbers and ranges, and describes a range. */
#include "config/number.h"

#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Returns the length of [+-] digits [. digits] [e [+-] digits]; 0: no match. strtod by itself would also accept
 * hexadecimals, nan and leading blanks. */
static size_t number_length(const char *text, bool *whole) {
    const char *p = text + (*text == '+' || *text == '-');
    const char *start = p;
    size_t digits = 0;
    for (; isdigit((unsigned char)*p); p++) digits++;
    *whole = true;
    if (*p == '.') {
        *whole = false;
        for (p++; isdigit((unsigned char)*p); p++) digits++;
    }
    if (digits == 0 || p == start) return 0;
    if (*p == 'e' || *p == 'E') {
        const char *e = p + 1 + (p[1] == '+' || p[1] == '-');
        if (!isdigit((unsigned char)*e)) return 0;
        while (isdigit((unsigned char)*e)) e++;
        *whole = false;
        p = e;
    }
    return (size_t)(p - text);
}

/* Returns the factor of a suffix; 0: unknown suffix. */
static int64_t suffix_factor(const char *suffix) {
    static const char *const suffixes[2][5] = {{"", "k", "M", "G", "T"}, {"", "Ki", "Mi", "Gi", "Ti"}};
    for (int binary = 0; binary < 2; binary++) {
        int64_t factor = 1;
        for (int i = 0; i < 5; i++, factor *= binary ? 1024 : 1000)
            if (strcmp(suffix, suffixes[binary][i]) == 0) return factor;
    }
    return 0;
}

bool weft_number_i64(int64_t *out, const char *text) {
    bool whole = false;
    const size_t n = number_length(text, &whole);
    const int64_t factor = n == 0 ? 0 : suffix_factor(text + n);
    if (factor == 0) return false;
    errno = 0;
    if (whole) {
        const long long value = strtoll(text, NULL, 10);
        int64_t product = 0;
        if (errno != 0 || __builtin_mul_overflow((int64_t)value, factor, &product)) return false;
        *out = product;
        return true;
    }
    const double value = strtod(text, NULL) * (double)factor;
    if (errno != 0 || value != floor(value) || fabs(value) >= 9.2e18) return false;
    *out = (int64_t)value;
    return true;
}

bool weft_number_bytes(int64_t *out, const char *text) {
    bool whole = false;
    char suffix[3] = "";
    const size_t n = number_length(text, &whole);
    const char *unit = text + n + strspn(text + n, " "); /* "GiB", "gb", "g" */
    size_t letters = strlen(unit);
    double value = 0.0;
    if (n == 0 || letters == 0) return false;
    letters -= unit[letters - 1] == 'B' || unit[letters - 1] == 'b';
    if (letters > 2) return false;
    if (letters > 0) suffix[0] = (char)toupper((unsigned char)unit[0]);
    if (letters == 1 && suffix[0] == 'K') suffix[0] = 'k';
    if (letters == 2) suffix[1] = (char)tolower((unsigned char)unit[1]);
    value = strtod(text, NULL) * (double)suffix_factor(suffix);
    if (!(value >= 1.0) || value >= 9.2e18) return false;
    *out = (int64_t)value;
    return true;
}

bool weft_number_f64(double *out, const char *text) {
    bool whole = false;
    const size_t n = number_length(text, &whole);
    double value = 0;
    if (n == 0 || text[n] != '\0') return false;
    errno = 0;
    value = strtod(text, NULL);
    if (errno != 0 || fabs(value) >= 1e300) return false; /* reserved for the words none and auto */
    *out = value;
    return true;
}

void weft_number_print(char *out, size_t size, double value) {
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(out, size, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    if (strchr(out, 'e') != NULL && value == floor(value) && fabs(value) < 1e6)
        (void)snprintf(out, size, "%.0f", value);
}

bool weft_part_next(const char **rest, char separator, const char **part, size_t *n) {
    const char *begin = *rest;
    const char *end = NULL;
    if (begin == NULL) return false;
    end = strchr(begin, separator);
    *rest = end == NULL ? NULL : end + 1;
    if (end == NULL) end = begin + strlen(begin);
    while (begin < end && isspace((unsigned char)*begin)) begin++;
    while (end > begin && isspace((unsigned char)end[-1])) end--;
    *part = begin;
    *n = (size_t)(end - begin);
    return true;
}

/* Parses one bound; `inf` is the word for an unbounded side, which cannot be closed. */
static bool parse_bound(long double *out, const char *text, size_t n, const char *inf, bool is_open, int32_t type) {
    char bound[40];
    int64_t whole = 0;
    double real = 0;
    bool is_number = false;
    if (n == 0 || n >= sizeof bound) return false;
    (void)snprintf(bound, sizeof bound, "%.*s", (int)n, text);
    if (strcmp(bound, inf) == 0) {
        *out = *inf == '-' ? -INFINITY : INFINITY;
        return is_open;
    }
    is_number = type == WEFT_KEY_I64 ? weft_number_i64(&whole, bound) : weft_number_f64(&real, bound);
    *out = type == WEFT_KEY_I64 ? (long double)whole : (long double)real;
    return is_number;
}

static bool is_empty(const weft_bounds *self) {
    const long double step = self->type == WEFT_KEY_I64 ? 1 : 0;
    if (step == 0 && (self->low_open || self->high_open)) return self->low >= self->high;
    return self->low + (self->low_open ? step : 0) > self->high - (self->high_open ? step : 0);
}

/* text: "(0,1]" */
static bool parse_interval(weft_bounds *self, const char *text, size_t n) {
    char inner[96];
    const char *rest = inner, *part = NULL;
    size_t length = 0;
    if (self->has_interval || n < 2 || n >= sizeof inner) return false;
    if ((text[0] != '(' && text[0] != '[') || (text[n - 1] != ')' && text[n - 1] != ']')) return false;
    self->has_interval = true;
    self->low_open = text[0] == '(';
    self->high_open = text[n - 1] == ')';
    (void)snprintf(inner, sizeof inner, "%.*s", (int)n - 2, text + 1);
    return weft_part_next(&rest, ',', &part, &length) &&
           parse_bound(&self->low, part, length, "-inf", self->low_open, self->type) &&
           weft_part_next(&rest, ',', &part, &length) &&
           parse_bound(&self->high, part, length, "inf", self->high_open, self->type) && rest == NULL &&
           !is_empty(self);
}

bool weft_bounds_parse(weft_bounds *out, const char *text, int32_t type) {
    weft_bounds range = {.type = type, .low = -INFINITY, .high = INFINITY};
    const char *rest = *text == '\0' ? NULL : text, *part = NULL;
    size_t n = 0;
    while (weft_part_next(&rest, '|', &part, &n))
        if (n == 4 && memcmp(part, "none", 4) == 0 && !range.allows_none) range.allows_none = true;
        else if (n == 4 && memcmp(part, "auto", 4) == 0 && !range.allows_auto) range.allows_auto = true;
        else if (!parse_interval(&range, part, n)) return false;
    *out = range;
    return true;
}

bool weft_bounds_has(const weft_bounds *self, long double value) {
    if (self->type == WEFT_KEY_I64 && (value == WEFT_NONE_I64 || value == WEFT_AUTO_I64))
        return false; /* reserved for the words */
    return (self->low_open ? value > self->low : value >= self->low) &&
           (self->high_open ? value < self->high : value <= self->high);
}

static void print_bound(const weft_bounds *self, char *out, size_t size, long double bound) {
    if (!isfinite(bound)) *out = '\0';
    else if (self->type == WEFT_KEY_I64) (void)snprintf(out, size, "%lld", (long long)bound);
    else weft_number_print(out, size, (double)bound);
}

/* "a whole number of 1 or more" */
static void advise_interval(const weft_bounds *self, char *out, size_t size) {
    const char *noun = self->type == WEFT_KEY_I64 ? "whole number" : "number";
    char low[40], high[40];
    print_bound(self, low, sizeof low, self->low);
    print_bound(self, high, sizeof high, self->high);
    if (*low != '\0' && *high != '\0')
        (void)snprintf(out, size, "a %s %s %s and %s %s", noun, self->low_open ? "above" : "of at least", low,
                       self->high_open ? "below" : "at most", high);
    else if (self->low_open && self->low == 0) (void)snprintf(out, size, "a positive %s", noun);
    else if (*low != '\0')
        (void)snprintf(out, size, self->low_open ? "a %s above %s" : "a %s of %s or more", noun, low);
    else if (*high != '\0')
        (void)snprintf(out, size, self->high_open ? "a %s below %s" : "a %s of %s or less", noun, high);
    else (void)snprintf(out, size, "a %s", noun);
}

void weft_bounds_advise(const weft_bounds *self, char *out, size_t size) {
    const char *words = self->allows_none && self->allows_auto ? ", none or auto"
                        : self->allows_none                    ? ", or none"
                        : self->allows_auto                    ? ", or auto"
                                                               : "";
    advise_interval(self, out, size);
    weft_words_append(out, size, "%s", words);
}
