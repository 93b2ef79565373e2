/* host/config/value.c: the seven types of keys. */
#include "config/value.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

#include "base/alloc.h"
#include "config/config.h"
#include "config/nearest.h"
#include "config/number.h"
#include "config/path.h"

bool weft_text_is_clean(const char *text, size_t n) {
    json_t *string = NULL;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) return false;
    }
    string = json_stringn(text, n); /* validates UTF-8 */
    json_decref(string);
    return string != NULL;
}

static bool part_is(const char *part, size_t n, const char *word) {
    return strlen(word) == n && memcmp(part, word, n) == 0;
}

static bool words_have(const char *range, const char *word) {
    const char *rest = *range == '\0' ? NULL : range;
    const char *part = NULL;
    size_t n = 0;
    while (weft_part_next(&rest, '|', &part, &n))
        if (part_is(part, n, word)) return true;
    return false;
}

/* Stores bytes, and a copy of text. */
static void keep_value(weft_value *out, const void *bytes, const char *text) {
    memcpy(out->bytes, bytes, sizeof out->bytes);
    out->text = weft_strdup(text);
}

/* Stores a value with bytes that are a pointer to the text; takes ownership of text. */
static void keep_text_value(weft_value *out, char *text) {
    memcpy(out->bytes, &text, sizeof out->bytes);
    out->text = text;
}

static weft_status refuse_outside(const weft_key *key, const weft_bounds *range, weft_error *err) {
    char advice[240];
    weft_bounds_advise(range, advice, sizeof advice);
    return weft_error_set(err, WEFT_E_USER, "is outside %s: give %s", key->range, advice);
}

/* Returns whether a whole number has an unknown suffix: "20K". */
static bool has_odd_suffix(const char *text) {
    const size_t n = strspn(text, "0123456789");
    return n > 0 && text[n + strspn(text + n, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] == '\0';
}

/* Returns true for numbers from 1e308 on. */
static bool is_too_large(const char *text) {
    char *end = NULL;
    const double value = strtod(text, &end);
    const char first = text[text[0] == '-' || text[0] == '+'];
    return first >= '0' && first <= '9' && *end == '\0' && fabs(value) > 1e299;
}

/* Formats "; 5% is 0.05"; "": the text is not a percentage. */
static void advise_percent(char *out, size_t size, const char *text) {
    char number[32], *end = number;
    double value = 0;
    const size_t n = strlen(text);
    *out = '\0';
    if (n < 2 || n > sizeof number || text[n - 1] != '%') return;
    (void)snprintf(number, sizeof number, "%.*s", (int)(n - 1), text);
    end += strcspn(number, " ");
    *end = '\0';
    if (weft_number_f64(&value, number)) (void)snprintf(out, size, "; %s is %g", text, value / 100);
}

static weft_status refuse_number(const char *text, const weft_bounds *range, weft_error *err) {
    char advice[240], percent[80] = "";
    const bool whole = range->type == WEFT_KEY_I64;
    const char *what = *text == '\0'        ? "empty"
                       : whole              ? "not a whole number"
                       : is_too_large(text) ? "too large a number"
                                            : "not a number";
    if (!whole) advise_percent(percent, sizeof percent, text);
    weft_bounds_advise(range, advice, sizeof advice);
    return weft_error_set(err, WEFT_E_USER, "is %s: give %s%s", what, advice,
                          whole && has_odd_suffix(text) ? "; its suffix may be k, M, G or T, by thousands, and Ki, Mi, "
                                                          "Gi or Ti, by 1024"
                                                        : percent);
}

/* Returns -1 for "none" and +1 for "auto" if the range allows them, else 0. */
static int number_word(const weft_bounds *range, const char *text) {
    if (range->allows_none && strcmp(text, "none") == 0) return -1;
    if (range->allows_auto && strcmp(text, "auto") == 0) return 1;
    return 0;
}

static weft_status parse_number(weft_value *out, const weft_key *key, const char *text, weft_error *err) {
    const bool whole = key->type == WEFT_KEY_I64;
    weft_bounds range;
    char canonical[32];
    int64_t integer = 0;
    double real = 0;
    int word = 0;
    if (!weft_bounds_parse(&range, key->range, key->type))
        return weft_error_set(err, WEFT_E_PLUGIN, "has a key with the invalid range '%s'", key->range);
    word = number_word(&range, text);
    if (word != 0) {
        integer = word < 0 ? WEFT_NONE_I64 : WEFT_AUTO_I64;
        real = word < 0 ? WEFT_NONE_F64 : WEFT_AUTO_F64;
    } else if (whole ? !weft_number_i64(&integer, text) : !weft_number_f64(&real, text)) {
        return refuse_number(text, &range, err);
    } else if (!weft_bounds_has(&range, whole ? (long double)integer : (long double)real)) {
        return refuse_outside(key, &range, err);
    }
    if (whole) (void)snprintf(canonical, sizeof canonical, "%lld", (long long)integer);
    else weft_number_print(canonical, sizeof canonical, real);
    keep_value(out, whole ? (const void *)&integer : &real, word != 0 ? text : canonical);
    return WEFT_OK;
}

static weft_status parse_bool(weft_value *out, const char *text, weft_error *err) {
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const int64_t value = (int64_t)(i % 2);
        if (strcasecmp(text, words[i]) != 0) continue;
        keep_value(out, &value, words[value]);
        return WEFT_OK;
    }
    return weft_error_set(err, WEFT_E_USER, "is neither yes nor no: give yes, no, true, false, on, off, 1 or 0");
}

static weft_status parse_enum(weft_value *out, const weft_key *key, const char *text, weft_error *err) {
    weft_nearest near = {text, "", 0};
    char meant[96];
    const char *rest = key->range;
    const char *part = NULL;
    size_t n = 0;
    for (int64_t i = 0; weft_part_next(&rest, ',', &part, &n); i++) {
        if (part_is(part, n, text)) {
            keep_value(out, &i, text);
            return WEFT_OK;
        }
        weft_nearest_offer(&near, part, n);
    }
    weft_nearest_print(&near, meant, sizeof meant);
    return weft_error_set(err, WEFT_E_USER, "is not one of: %s%s", key->range, meant);
}

/* Keeps a word of the range, or a number if the range has the word "number", which means all numbers and not itself. */
static void parse_path(weft_value *out, const weft_key *key, const char *text, const char *directory) {
    double number = 0;
    const bool is_number = words_have(key->range, "number") && weft_number_f64(&number, text);
    const bool is_word = strcmp(text, "number") != 0 && words_have(key->range, text);
    keep_text_value(out, is_number || is_word ? weft_strdup(text) : weft_path_absolute(directory, text));
}

/* Returns an element of a list, as an absolute path if directory is set. named: the text before its first colon is a
 * name. */
static char *list_element(const char *part, size_t n, const char *directory, bool named) {
    char *element = weft_text_of("%.*s", (int)n, part), *path = NULL, *whole = NULL;
    const char *colon = named ? strchr(element, ':') : NULL, *name_end = colon == NULL ? element : colon + 1;
    if (directory == NULL) return element;
    path = weft_path_absolute(directory, name_end);
    whole = weft_text_of("%.*s%s", (int)(name_end - element), element, path);
    free(path);
    free(element);
    return whole;
}

static weft_status parse_list(weft_value *out, const weft_key *key, const char *text, const char *directory,
                              weft_error *err) {
    const bool named = (key->flags & WEFT_HOST_NAMED) != 0;
    const char *rest = text[strspn(text, " \t")] == '\0' ? NULL : text, *part = NULL;
    char *list = weft_strdup("");
    size_t n = 0;
    if ((key->flags & (WEFT_PATHS | WEFT_HOST_NAMED)) == 0) directory = NULL;
    while (weft_part_next(&rest, ',', &part, &n)) {
        char *element = NULL, *longer = NULL;
        if (n == 0) {
            free(list);
            return weft_error_set(err, WEFT_E_USER, "has an empty element: give names with one comma between two");
        }
        element = list_element(part, n, directory, named);
        longer = weft_text_of("%s%s%s", list, *list == '\0' ? "" : ",", element);
        free(element);
        free(list);
        list = longer;
    }
    keep_text_value(out, list);
    return WEFT_OK;
}

weft_status weft_value_parse(weft_value *out, const weft_key *key, const char *text, const char *directory,
                             weft_error *err) {
    switch (key->type) {
    case WEFT_KEY_I64:
    case WEFT_KEY_F64: return parse_number(out, key, text, err);
    case WEFT_KEY_BOOL: return parse_bool(out, text, err);
    case WEFT_KEY_STR: keep_text_value(out, weft_strdup(text)); return WEFT_OK;
    case WEFT_KEY_PATH: parse_path(out, key, text, directory); return WEFT_OK;
    case WEFT_KEY_ENUM: return parse_enum(out, key, text, err);
    case WEFT_KEY_LIST: return parse_list(out, key, text, directory, err);
    default: return weft_error_set(err, WEFT_E_PLUGIN, "has a key of the unknown type %d", key->type);
    }
}

void weft_value_free(weft_value *self) {
    free(self->text);
    self->text = NULL;
}
