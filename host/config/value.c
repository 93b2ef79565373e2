/* host/config/value.c: the seven types of keys, and absolute paths. */
#include "config/value.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "config/config.h"
#include "config/nearest.h"
#include "config/number.h"

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

static weft_status refuse_number(const char *text, const weft_bounds *range, weft_error *err) {
    const bool whole = range->type == WEFT_KEY_I64;
    const size_t n = strlen(text), digits = strspn(text, "0123456789");
    const bool has_suffix = digits > 0 &&
                            digits + strspn(text + digits, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == n;
    const char first = text[text[0] == '-' || text[0] == '+'];
    char *end = NULL;
    const bool is_too_large = first >= '0' && first <= '9' && fabs(strtod(text, &end)) > 1e299 && *end == '\0';
    char advice[240], number[32], percent[80] = "";
    double value = 0;
    if (!whole && n > 1 && n <= sizeof number && text[n - 1] == '%') {
        (void)snprintf(number, sizeof number, "%.*s", (int)(n - 1), text);
        number[strcspn(number, " ")] = '\0';
        if (weft_number_f64(&value, number)) (void)snprintf(percent, sizeof percent, "; %s is %g", text, value / 100);
    }
    weft_bounds_advise(range, advice, sizeof advice);
    return weft_error_set(err, WEFT_E_USER, "is %s: give %s%s",
                          *text == '\0'  ? "empty"
                          : whole        ? "not a whole number"
                          : is_too_large ? "too large a number"
                                         : "not a number",
                          advice,
                          whole && has_suffix ? "; its suffix may be k, M, G or T, by thousands, and Ki, Mi, Gi or Ti, "
                                                "by 1024"
                                              : percent);
}

static weft_status parse_number(weft_value *out, const weft_key *key, const char *text, weft_error *err) {
    const bool whole = key->type == WEFT_KEY_I64;
    weft_bounds range;
    char canonical[32], advice[240];
    int64_t integer = 0;
    double real = 0;
    bool is_none = false, is_auto = false;
    if (!weft_bounds_parse(&range, key->range, key->type))
        return weft_error_set(err, WEFT_E_PLUGIN, "has a key with the invalid range '%s'", key->range);
    is_none = range.allows_none && strcmp(text, "none") == 0;
    is_auto = range.allows_auto && strcmp(text, "auto") == 0;
    if (is_none || is_auto) {
        integer = is_none ? WEFT_NONE_I64 : WEFT_AUTO_I64;
        real = is_none ? WEFT_NONE_F64 : WEFT_AUTO_F64;
    } else if (whole ? !weft_number_i64(&integer, text) : !weft_number_f64(&real, text)) {
        return refuse_number(text, &range, err);
    } else if (!weft_bounds_has(&range, whole ? (long double)integer : (long double)real)) {
        weft_bounds_advise(&range, advice, sizeof advice);
        return weft_error_set(err, WEFT_E_USER, "is outside %s: give %s", key->range, advice);
    }
    if (whole) (void)snprintf(canonical, sizeof canonical, "%lld", (long long)integer);
    else weft_number_print(canonical, sizeof canonical, real);
    keep_value(out, whole ? (const void *)&integer : &real, is_none || is_auto ? text : canonical);
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

/* Elements become absolute paths if the key is a list of paths. With names, the text before the first colon is one. */
static weft_status parse_list(weft_value *out, const weft_key *key, const char *text, const char *directory,
                              weft_error *err) {
    const bool named = (key->flags & WEFT_HOST_NAMED) != 0, are_paths = named || (key->flags & WEFT_PATHS) != 0;
    const char *rest = text[strspn(text, " \t")] == '\0' ? NULL : text, *part = NULL;
    char *list = weft_strdup("");
    size_t n = 0;
    while (weft_part_next(&rest, ',', &part, &n)) {
        const char *colon = named ? memchr(part, ':', n) : NULL;
        const int name = colon == NULL ? 0 : (int)(colon + 1 - part);
        char *value = weft_text_of("%.*s", (int)n - name, part + name), *longer = NULL;
        char *path = are_paths ? weft_path_absolute(directory, value) : NULL;
        longer = weft_text_of("%s%s%.*s%s", list, *list == '\0' ? "" : ",", name, part, are_paths ? path : value);
        free(path);
        free(value);
        free(list);
        list = longer;
        if (n > 0) continue;
        free(list);
        return weft_error_set(err, WEFT_E_USER, "has an empty element: give names with one comma between two");
    }
    keep_text_value(out, list);
    return WEFT_OK;
}

weft_status weft_value_parse(weft_value *out, const weft_key *key, const char *text, const char *directory,
                             weft_error *err) {
    double number = 0;
    bool is_word = false;
    switch (key->type) {
    case WEFT_KEY_I64:
    case WEFT_KEY_F64: return parse_number(out, key, text, err);
    case WEFT_KEY_BOOL: return parse_bool(out, text, err);
    case WEFT_KEY_STR: keep_text_value(out, weft_strdup(text)); return WEFT_OK;
    case WEFT_KEY_PATH: /* a word of the range stays, and any number if the range has the word "number" */
        is_word = strcmp(text, "number") != 0 && words_have(key->range, text);
        is_word |= words_have(key->range, "number") && weft_number_f64(&number, text);
        keep_text_value(out, is_word ? weft_strdup(text) : weft_path_absolute(directory, text));
        return WEFT_OK;
    case WEFT_KEY_ENUM: return parse_enum(out, key, text, err);
    case WEFT_KEY_LIST: return parse_list(out, key, text, directory, err);
    default: return weft_error_set(err, WEFT_E_PLUGIN, "has a key of the unknown type %d", key->type);
    }
}

void weft_value_free(weft_value *self) {
    free(self->text);
    self->text = NULL;
}

/* ---- paths ---- */

/* Appends one component to out, which is "/a/b" or "". A `..` cancels the last component unless that is a link, which
 * it would not lead back from. */
static void add_part(char *out, const char *part, size_t n) {
    const size_t length = strlen(out);
    char *last = strrchr(out, '/');
    struct stat info;
    if (n == 0 || (n == 1 && part[0] == '.')) return;
    if (n == 2 && memcmp(part, "..", 2) == 0) {
        if (last == NULL) return; /* the root's parent is the root */
        if (strcmp(last, "/..") != 0 && (lstat(out, &info) != 0 || !S_ISLNK(info.st_mode))) {
            *last = '\0';
            return;
        }
    }
    (void)sprintf(out + length, "/%.*s", (int)n, part);
}

static void add_parts(char *out, const char *path) {
    while (*path != '\0') {
        const size_t n = strcspn(path, "/");
        add_part(out, path, n);
        path += n + (path[n] == '/');
    }
}

char *weft_path_absolute(const char *directory, const char *path) {
    char *out = weft_alloc(strlen(directory) + strlen(path) + 4, 1);
    if (*path == '\0') return out;
    if (*path != '/') add_parts(out, directory);
    add_parts(out, path);
    if (*out == '\0') strcpy(out, "/");
    return out;
}

char *weft_path_home(const char *file) {
    const char *slash = file == NULL ? NULL : strrchr(file, '/');
    char *directory = NULL, *real = NULL;
    if (slash == NULL) return realpath(".", NULL);
    directory = weft_text_of("%.*s", slash == file ? 1 : (int)(slash - file), file);
    real = realpath(directory, NULL);
    free(directory);
    return real;
}
