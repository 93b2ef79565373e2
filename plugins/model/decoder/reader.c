/* reader.c: see reader.h. */
#include "reader.h"

#include <stdlib.h>

const char *reader_shown(const json_t *value, char text[96]) {
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(12));
    (void)snprintf(text, 96, "%.80s%s", dump == NULL ? "?" : dump, dump != NULL && strlen(dump) > 80 ? "..." : "");
    free(dump);
    return text;
}

void reader_complain(reader *r, const char *format, ...) {
    char text[1024];
    va_list args;
    if (r->status != WEFT_OK) return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = weft_error_set(r->err, WEFT_E_USER, "%s: %s", r->path, text);
}

void reader_refuse(reader *r, const char *key, const json_t *value, const char *allowed) {
    char text[96];
    reader_complain(r, "%s%s is %s; allowed is %s", r->of, key, reader_shown(value, text), allowed);
}

json_t *reader_get(const reader *r, const char *key) {
    json_t *value = json_object_get(r->root, key);
    return json_is_null(value) ? NULL : value;
}

json_t *reader_need(reader *r, const char *key) {
    json_t *value = reader_get(r, key);
    if (value == NULL) reader_complain(r, "%s%s is missing, and the model needs it", r->of, key);
    return value;
}

int reader_says(const reader *r, const char *key) {
    return json_object_get(r->root, key) != NULL;
}

int64_t reader_size(reader *r, const char *key, int64_t max, int64_t fallback) {
    json_t *value = fallback == 0 ? reader_need(r, key) : reader_get(r, key);
    char allowed[64];
    if (value == NULL) return fallback;
    if (json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= max)
        return json_integer_value(value);
    (void)snprintf(allowed, sizeof allowed, "an integer from 1 to %lld", (long long)max);
    reader_refuse(r, key, value, allowed);
    return fallback;
}

double reader_number(reader *r, const char *key, double min, int closed, double fallback) {
    json_t *value = reader_get(r, key);
    char allowed[64];
    double number = 0;
    if (value == NULL) return fallback;
    number = json_number_value(value);
    if (json_is_number(value) && (closed ? number >= min : number > min)) return number;
    (void)snprintf(allowed, sizeof allowed, "a number %s %g", closed ? "from" : "above", min);
    reader_refuse(r, key, value, allowed);
    return fallback;
}

int reader_flag(reader *r, const char *key, int fallback) {
    json_t *value = reader_get(r, key);
    if (value != NULL && !json_is_boolean(value)) reader_refuse(r, key, value, "true or false");
    return reader_says(r, key) ? json_is_true(value) : fallback;
}

int32_t reader_token(reader *r, const char *key, int64_t vocab) {
    json_t *value = reader_get(r, key), *one = value;
    char allowed[96];
    if (json_is_array(value)) one = json_array_get(value, 0);
    if (one == NULL) return -1;
    if (json_is_integer(one) && json_integer_value(one) < vocab)
        return json_integer_value(one) < 0 ? -1 : (int32_t)json_integer_value(one);
    (void)snprintf(allowed, sizeof allowed, "an id below vocab_size %lld, a list of such, or null", (long long)vocab);
    reader_refuse(r, key, value, allowed);
    return -1;
}

int reader_is_off(const json_t *value) {
    if (json_is_number(value)) return json_number_value(value) == 0;
    if (json_is_string(value)) return json_string_length(value) == 0;
    if (json_is_object(value)) return json_object_size(value) == 0;
    if (json_is_array(value)) return json_array_size(value) == 0;
    return !json_is_true(value);
}
