/* host/model/stop_ids.c: see stop_ids.h. */
#include "model/stop_ids.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "model/config_json.h"

#include <jansson.h>
#include <stdlib.h>

/* Adds the ids of a value; null and a missing key add no ids. */
static weft_status add_ids(weft_stop_ids *out, const json_t *value, const char *path, weft_error *err) {
    const bool is_list = json_is_array(value);
    const size_t n = is_list ? json_array_size(value) : 1;
    bool good = n <= WEFT_MAX_STOP_IDS;
    if (value == NULL || json_is_null(value)) return WEFT_OK;
    for (size_t i = 0; i < n && good; i++) {
        const json_t *id = is_list ? json_array_get(value, i) : value;
        good = json_is_integer(id);
        if (good) out->ids[out->n++] = (int32_t)json_integer_value(id);
    }
    if (good) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA,
                          "%s: eos_token_id is not valid. Allowed: an id, a list of at most %d ids, null", path,
                          WEFT_MAX_STOP_IDS);
}

static weft_status read_file(weft_stop_ids *out, const char *directory, const char *name, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    json_t *root = NULL;
    bool is_there = false;
    weft_status status = weft_path_join(path, directory, name, err);
    if (status == WEFT_OK) status = weft_file_exists(&is_there, path, err);
    if (status != WEFT_OK || !is_there) return status;
    status = weft_json_read(&root, path, 0, err);
    if (status == WEFT_OK) status = add_ids(out, json_object_get(root, "eos_token_id"), path, err);
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

bool weft_stop_ids_have(const weft_stop_ids *self, int32_t id) {
    for (int32_t i = 0; i < self->n; i++)
        if (self->ids[i] == id) return true;
    return false;
}

/* ---- writing ---- */

enum { TEXT_LIMIT = 64 << 20 };

/* Puts the ids before the existing ones in a file's text. *text is not changed if it contains them all. */
static weft_status change_text(char **text, size_t *bytes, const weft_stop_ids *first, const weft_stop_ids *others,
                               const char *path, weft_error *err) {
    char value[16 * WEFT_MAX_STOP_IDS] = ""; /* one id as a number, several as a list */
    const weft_json_change change = {"eos_token_id", value};
    weft_stop_ids own = {.n = 0}, all = *first;
    json_t *root = NULL;
    bool has_all = true;
    weft_status status = weft_json_parse(&root, *text, *bytes, 0, path, err);
    const bool is_empty = json_object_size(root) == 0;
    if (status == WEFT_OK) status = add_ids(&own, json_object_get(root, change.key), path, err);
    json_decref(root);
    for (int32_t i = 0; i < first->n; i++) has_all = has_all && weft_stop_ids_have(&own, first->ids[i]);
    if (status != WEFT_OK || has_all) return status;
    if (own.n > 0) others = &own;
    for (int32_t i = 0; i < others->n && all.n < WEFT_MAX_STOP_IDS; i++)
        if (!weft_stop_ids_have(&all, others->ids[i])) all.ids[all.n++] = others->ids[i];
    for (int32_t i = 0; i < all.n; i++)
        weft_words_append(value, sizeof value, "%s%d", i > 0 ? ", " : all.n > 1 ? "[" : "", (int)all.ids[i]);
    if (all.n > 1) weft_words_append(value, sizeof value, "]");
    if (!is_empty) return weft_config_json_change(text, bytes, &change, 1, err);
    char *before = *text;
    *text = weft_text_of("{\n  \"%s\": %s\n}\n", change.key, value); /* another address: the caller compares them */
    free(before);
    *bytes = strlen(*text);
    return WEFT_OK;
}

/* made: create the file if it is missing. */
static weft_status save_in(const weft_stop_ids *self, const weft_stop_ids *others, const char *directory,
                           const char *name, bool made, weft_error *err) {
    char path[WEFT_PATH_BYTES], *text = NULL;
    size_t bytes = 2;
    const char *before = NULL;
    bool is_there = false;
    weft_status status = weft_path_join(path, directory, name, err);
    if (status == WEFT_OK) status = weft_file_exists(&is_there, path, err);
    if (status != WEFT_OK || (!is_there && !made)) return status;
    if (is_there) status = weft_text_read(&text, &bytes, path, TEXT_LIMIT, err);
    else text = weft_strdup("{}");
    before = text;
    if (status == WEFT_OK) status = change_text(&text, &bytes, self, others, path, err);
    if (status == WEFT_OK && text != before) status = weft_file_replace(path, text, bytes, err);
    free(text);
    return status;
}

weft_status weft_stop_ids_save(const weft_stop_ids *self, const weft_stop_ids *others, const char *directory,
                               weft_error *err) {
    char config[WEFT_PATH_BYTES];
    bool has_config = false;
    weft_status status = weft_path_join(config, directory, "config.json", err);
    if (status == WEFT_OK) status = weft_file_exists(&has_config, config, err);
    if (status == WEFT_OK) status = save_in(self, others, directory, "generation_config.json", !has_config, err);
    return status == WEFT_OK ? save_in(self, others, directory, "config.json", false, err) : status;
}
