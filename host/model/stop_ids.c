/* host/model/stop_ids.c: see stop_ids.h. */
#include "model/stop_ids.h"

#include "base/file.h"

#include <jansson.h>

static weft_status refuse_value(const char *path, weft_error *err) {
    return weft_error_set(err, WEFT_E_DATA, "%s: eos_token_id must be an id, a list of at most %d ids, or null", path,
                          WEFT_MAX_STOP_IDS);
}

/* Adds the ids of a value; null and a missing key add none. */
static weft_status add_ids(weft_stop_ids *out, const json_t *value, const char *path, weft_error *err) {
    const size_t n = json_array_size(value);
    if (value == NULL || json_is_null(value)) return WEFT_OK;
    if (json_is_integer(value)) {
        out->ids[out->n++] = (int32_t)json_integer_value(value);
        return WEFT_OK;
    }
    if (!json_is_array(value) || n > WEFT_MAX_STOP_IDS) return refuse_value(path, err);
    for (size_t i = 0; i < n; i++) {
        if (!json_is_integer(json_array_get(value, i))) return refuse_value(path, err);
        out->ids[out->n++] = (int32_t)json_integer_value(json_array_get(value, i));
    }
    return WEFT_OK;
}

static weft_status read_file(weft_stop_ids *out, const char *directory, const char *name, weft_error *err) {
    char path[4096];
    json_error_t why;
    json_t *root = NULL;
    bool is_there = false;
    weft_status status = WEFT_OK;
    const int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return weft_error_set(err, WEFT_E_USER, "the path %s is too long", directory);
    status = weft_file_exists(&is_there, path, err);
    if (status != WEFT_OK || !is_there) return status;
    root = json_load_file(path, 0, &why);
    if (root == NULL) return weft_error_set(err, WEFT_E_DATA, "%s:%d: %s", path, why.line, why.text);
    status = add_ids(out, json_object_get(root, "eos_token_id"), path, err);
    json_decref(root);
    return status;
}

weft_status weft_stop_ids_read(weft_stop_ids *out, const char *directory, int32_t fallback, weft_error *err) {
    weft_stop_ids found = {.n = 0};
    weft_status status = read_file(&found, directory, "generation_config.json", err);
    if (status == WEFT_OK && found.n == 0) status = read_file(&found, directory, "config.json", err);
    if (status != WEFT_OK) return status;
    if (found.n == 0 && fallback >= 0) found.ids[found.n++] = fallback;
    *out = found;
    return WEFT_OK;
}
