/* json.c: reads JSON by jansson, and writes error messages. */
#include "json.h"

#include "../../common/json_big.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static weft_status read_text(char **out, size_t *n, const char *file, size_t bytes, weft_error *err) {
    FILE *stream = fopen(file, "re");
    *out = malloc(bytes + 1);
    *n = stream == NULL || *out == NULL ? 0 : fread(*out, 1, bytes, stream);
    if (stream != NULL) (void)fclose(stream);
    if (*out == NULL) return bpe_no_memory(err);
    (*out)[*n] = 0;
    return stream != NULL && *n == bytes ? WEFT_OK : weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read.", file);
}

/* Returns the position after the string that begins at `at`. */
static size_t behind_string(const char *text, size_t n, size_t at) {
    for (at++; at < n && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at < n ? at + 1 : n;
}

/* Writes \ufdd0 for each \u0000 in a key, and returns true if there was one. */
static bool hide_nul_keys(char *text, size_t n) {
    bool any = false;
    for (size_t at = 0, end = 0; at<n; at = end> at ? end : at + 1) {
        end = text[at] == '"' ? behind_string(text, n, at) : at + 1;
        if (text[at] != '"' || memmem(text + at, end - at, "\\u0000", 6) == NULL) continue;
        if (text[end + strspn(text + end, " \t\r\n")] != ':') continue;
        for (size_t i = at + 1; i + 6 < end; i += text[i] == '\\' ? 2 : 1) {
            if (memcmp(text + i, "\\u0000", 6) != 0) continue;
            memcpy(text + i, "\\ufdd0", 6);
            any = true;
        }
    }
    return any;
}

static weft_status parse(json_t **out, const char *file, char *text, size_t n, bool *nul_keys, weft_error *err) {
    json_error_t why;
    if (strstr(text, "\\u0000") != NULL && strcasestr(text, "\\ufdd0") == NULL && strstr(text, BPE_NUL) == NULL)
        *nul_keys = hide_nul_keys(text, n);
    *out = json_big_load(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (*out == NULL)
        return weft_error_set(err, WEFT_E_DATA, "%s:%d:%d: is not JSON: %s.", file, why.line, why.column, why.text);
    return json_is_object(*out) ? WEFT_OK : weft_error_set(err, WEFT_E_DATA, "%s: must be a JSON object.", file);
}

weft_status bpe_json_load(json_t **out, const char *file, bool required, bool *nul_keys, weft_error *err) {
    struct stat about;
    char *text = NULL;
    size_t n = 0;
    weft_status status = WEFT_OK;
    *out = NULL;
    *nul_keys = false;
    if (access(file, F_OK) != 0 && errno == ENOENT && !required) return WEFT_OK;
    if (stat(file, &about) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s.", file, strerror(errno));
    if (!S_ISREG(about.st_mode)) return weft_error_set(err, WEFT_E_USER, "%s: is not a regular file.", file);
    status = read_text(&text, &n, file, (size_t)about.st_size, err);
    if (status == WEFT_OK) status = parse(out, file, text, n, nul_keys, err);
    if (status != WEFT_OK) {
        json_decref(*out);
        *out = NULL;
    }
    free(text);
    return status;
}

bpe_place bpe_place_file(const char *file) {
    bpe_place place = {file, false, {0}};
    return place;
}

/* Appends to a path. A path that is too long keeps its end, which locates the error. */
static void extend(bpe_place *place, const char *what, const char *separator) {
    const size_t n = strlen(place->path), more = strlen(what) + strlen(separator);
    const size_t over = n + more + 1 > sizeof place->path ? n + more + 1 - sizeof place->path : 0;
    if (over > n) return;
    memmove(place->path, place->path + over, n - over + 1);
    (void)snprintf(place->path + n - over, sizeof place->path - (n - over), "%s%s", separator, what);
}

bpe_place bpe_place_key(const bpe_place *at, const char *key) {
    bpe_place place = *at;
    extend(&place, key, place.path[0] == 0 ? "" : ".");
    return place;
}

bpe_place bpe_place_index(const bpe_place *at, size_t i) {
    bpe_place place = *at;
    char text[32];
    (void)snprintf(text, sizeof text, "[%zu]", i);
    extend(&place, text, "");
    return place;
}

weft_status bpe_json_fail(weft_error *err, const bpe_place *at, const char *format, ...) {
    char text[1200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return weft_error_set(err, WEFT_E_DATA, "%s: %s%s%s", at->file, at->path, at->path[0] == 0 ? "" : ": ", text);
}

static const char *kind_of(const json_t *value) {
    static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                        "a number",  "true",     "false",    "null"};
    return value == NULL ? "missing" : names[json_typeof(value)];
}

weft_status bpe_json_text(const char **out, size_t *n, const bpe_place *at, const json_t *object, const char *key,
                          weft_error *err) {
    const json_t *value = json_object_get(object, key);
    const bpe_place here = bpe_place_key(at, key);
    if (!json_is_string(value)) return bpe_json_fail(err, &here, "must be a string, but is %s.", kind_of(value));
    *out = json_string_value(value);
    *n = json_string_length(value);
    return WEFT_OK;
}

weft_status bpe_json_copy(bpe_text *out, const weft_host *host, const bpe_place *at, const json_t *object,
                          const char *key, weft_error *err) {
    const char *bytes = NULL;
    size_t n = 0;
    weft_status status = bpe_json_text(&bytes, &n, at, object, key, err);
    if (status == WEFT_OK && !bpe_text_set(out, host, bytes, n)) status = bpe_no_memory(err);
    return status;
}

weft_status bpe_json_bool(bool *out, const bpe_place *at, const json_t *object, const char *key, const bool *fallback,
                          weft_error *err) {
    const json_t *value = json_object_get(object, key);
    const bpe_place here = bpe_place_key(at, key);
    if (fallback != NULL && (value == NULL || json_is_null(value))) {
        *out = *fallback;
        return WEFT_OK;
    }
    if (!json_is_boolean(value)) return bpe_json_fail(err, &here, "must be true or false, but is %s.", kind_of(value));
    *out = json_is_true(value);
    return WEFT_OK;
}

weft_status bpe_json_id(int32_t *out, const bpe_place *at, const json_t *value, weft_error *err) {
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value)) return bpe_json_fail(err, at, "an id must be an integer, but is %s.", kind_of(value));
    if (id < 0 || id > BPE_HIGHEST_ID)
        return bpe_json_fail(err, at, "an id must be in 0..%d, but is %lld.", BPE_HIGHEST_ID, (long long)id);
    *out = (int32_t)id;
    return WEFT_OK;
}

weft_status bpe_json_type(const char **out, const bpe_place *at, const json_t *object, weft_error *err) {
    size_t n = 0;
    if (!json_is_object(object)) return bpe_json_fail(err, at, "must be an object, but is %s.", kind_of(object));
    return bpe_json_text(out, &n, at, object, "type", err);
}

weft_status bpe_json_array(const json_t **out, const bpe_place *at, const json_t *object, const char *key,
                           weft_error *err) {
    const json_t *value = json_object_get(object, key);
    const bpe_place here = bpe_place_key(at, key);
    if (!json_is_array(value)) return bpe_json_fail(err, &here, "must be an array, but is %s.", kind_of(value));
    *out = value;
    return WEFT_OK;
}

bool bpe_json_listed(const char *keys, const char *key) {
    const size_t n = strlen(key);
    for (const char *at = strstr(keys, key); n > 0 && at != NULL; at = strstr(at + 1, key)) {
        if ((at == keys || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) return true;
    }
    return false;
}

weft_status bpe_json_known(const bpe_place *at, const json_t *object, const char *keys, weft_error *err) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)object, key, value) {
        const bpe_place here = bpe_place_key(at, bpe_quote(key, strlen(key)).text);
        if (!bpe_json_listed(keys, key))
            return bpe_json_fail(err, &here, "unknown key, which might change ids. Allowed: %s.", keys);
    }
    return WEFT_OK;
}

typedef struct walk {
    void *self;
    bpe_step_read *read;
    const char *list;
} walk;

static weft_status walk_any(const walk *self, const bpe_place *at, const json_t *json, int depth, weft_error *err);

static weft_status walk_list(const walk *self, const bpe_place *at, const json_t *json, int depth, weft_error *err) {
    const bpe_place here = bpe_place_key(at, self->list);
    const json_t *list = NULL;
    char keys[64];
    weft_status status = WEFT_OK;
    (void)snprintf(keys, sizeof keys, "type %s", self->list);
    status = bpe_json_known(at, json, keys, err);
    if (status == WEFT_OK) status = bpe_json_array(&list, at, json, self->list, err);
    for (size_t i = 0; i < json_array_size(list) && status == WEFT_OK; i++) {
        const bpe_place one = bpe_place_index(&here, i);
        status = walk_any(self, &one, json_array_get(list, i), depth + 1, err);
    }
    return status;
}

static weft_status walk_any(const walk *self, const bpe_place *at, const json_t *json, int depth, weft_error *err) {
    const char *type = NULL;
    weft_status status = bpe_json_type(&type, at, json, err);
    if (status != WEFT_OK) return status;
    if (depth > 8) return bpe_json_fail(err, at, "sequences are nested more than 8 levels deep.");
    if (strcmp(type, "Sequence") == 0) return walk_list(self, at, json, depth, err);
    return self->read(self->self, at, json, type, err);
}

weft_status bpe_json_steps(void *self, bpe_step_read *read, const bpe_place *at, const json_t *json, const char *list,
                           weft_error *err) {
    const walk all = {self, read, list};
    return json == NULL || json_is_null(json) ? WEFT_OK : walk_any(&all, at, json, 0, err);
}

bpe_quoted bpe_quote(const char *bytes, size_t n) {
    bpe_quoted out = {{0}};
    size_t used = 0;
    out.text[used++] = '"';
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        const bool plain = byte >= 0x20 && byte != 0x7f;
        if (used + 12 > sizeof out.text) {
            (void)snprintf(out.text + used, sizeof out.text - used, "...");
            used += 3;
            break;
        }
        if (plain) out.text[used++] = (char)byte;
        else used += (size_t)snprintf(out.text + used, sizeof out.text - used, "\\x%02X", byte);
    }
    out.text[used++] = '"';
    return out;
}
