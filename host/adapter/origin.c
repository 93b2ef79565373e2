/* host/adapter/origin.c: see origin.h. */
#include "adapter/origin.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/join.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

enum { LOOKED_AT = 4096 }; /* bytes at each end of a tensor */

static weft_status hash_tensor(weft_hash *hash, const weft_safetensors *files, const weft_tensor *tensor,
                               weft_error *err) {
    unsigned char bytes[LOOKED_AT];
    const int64_t n = tensor->bytes < LOOKED_AT ? tensor->bytes : LOOKED_AT;
    weft_status status = WEFT_OK;
    weft_hash_put(hash, tensor->name, strlen(tensor->name) + 1);
    weft_hash_put(hash, &tensor->dtype, sizeof tensor->dtype);
    weft_hash_put(hash, tensor->dims, (size_t)tensor->rank * sizeof *tensor->dims);
    status = weft_safetensors_read(files, bytes, tensor, 0, n, err);
    if (status == WEFT_OK) weft_hash_put(hash, bytes, (size_t)n);
    if (status == WEFT_OK) status = weft_safetensors_read(files, bytes, tensor, tensor->bytes - n, n, err);
    if (status == WEFT_OK) weft_hash_put(hash, bytes, (size_t)n);
    return status;
}

weft_status weft_base_fingerprint(char hex[65], const char *directory, weft_error *err) {
    unsigned char digest[WEFT_HASH_BYTES];
    weft_safetensors *files = NULL;
    weft_hash hash = {0};
    weft_status status = weft_safetensors_open_directory(&files, directory, err);
    if (status != WEFT_OK) return status;
    status = weft_hash_start(&hash, err);
    for (int32_t i = 0; i < files->n_tensors && status == WEFT_OK; i++)
        status = hash_tensor(&hash, files, &files->tensors[i], err);
    if (status == WEFT_OK) status = weft_hash_finish(&hash, digest, err);
    if (status == WEFT_OK) weft_hash_hex(hex, digest);
    weft_hash_free(&hash);
    weft_safetensors_close(files);
    return status;
}

static void add_list(json_t *object, const weft_adapter_origin *origin) {
    json_t *list = json_array();
    for (int32_t i = 0; i < origin->n_all; i++) (void)json_array_append_new(list, json_string(origin->all[i]));
    if (origin->n_all > 0) (void)json_object_set(object, "adapters", list);
    json_decref(list);
}

static weft_status take_list(weft_adapter_origin *out, const json_t *list, const char *path, weft_error *err) {
    const size_t n = json_array_size(list);
    if (list == NULL) return WEFT_OK;
    for (size_t i = 0; i < n && i < WEFT_MOST_ADAPTERS; i++) {
        const char *id = json_string_value(json_array_get(list, i));
        if (id == NULL || id[0] == '\0' || strlen(id) >= sizeof out->all[i]) continue;
        (void)snprintf(out->all[out->n_all++], sizeof out->all[i], "%s", id);
    }
    if (n > 0 && n == (size_t)out->n_all) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA, "%s: adapters is no list of 1 to %d ids of plugins", path,
                          WEFT_MOST_ADAPTERS);
}

weft_status weft_origin_save(const weft_adapter_origin *origin, const char *directory, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(path, directory, WEFT_ADAPTER_ORIGIN, err);
    json_t *object = json_pack("{s:i, s:s, s:s, s:s}", "format", 1, "plugin", origin->plugin, "version",
                               origin->version, "base", origin->base);
    char *text = NULL;
    add_list(object, origin);
    text = object == NULL ? NULL : json_dumps(object, JSON_INDENT(2));
    if (status == WEFT_OK && text == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for it", path);
    if (status == WEFT_OK) status = weft_file_replace(path, text, strlen(text), err);
    free(text);
    json_decref(object);
    return status;
}

static void take_text(char *out, size_t size, const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    if (text != NULL && strlen(text) < size) (void)snprintf(out, size, "%s", text);
}

weft_status weft_origin_load(weft_adapter_origin *out, const char *directory, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    json_error_t why;
    json_t *object = NULL;
    weft_status status = weft_path_join(path, directory, WEFT_ADAPTER_ORIGIN, err);
    memset(out, 0, sizeof *out);
    if (status != WEFT_OK || access(path, F_OK) != 0) return status;
    object = json_load_file(path, 0, &why);
    if (object == NULL) return weft_error_set(err, WEFT_E_DATA, "%s: %s", path, why.text);
    take_text(out->plugin, sizeof out->plugin, object, "plugin");
    take_text(out->version, sizeof out->version, object, "version");
    take_text(out->base, sizeof out->base, object, "base");
    status = take_list(out, json_object_get(object, "adapters"), path, err);
    json_decref(object);
    return status;
}
