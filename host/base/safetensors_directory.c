/* host/base/safetensors_directory.c: opens a Hugging Face directory: its files, and an index that must match them. */
#include "base/safetensors.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/text.h"
#include "base/bitsandbytes.h"
#include "base/safetensors_parts.h"

enum { INDEX_LIMIT = 100 << 20 };

/* Accepts only a plain file name in the index's directory. */
static bool is_shard_name_good(const char *name) {
    const size_t n = name == NULL ? 0 : strlen(name), suffix = strlen(".safetensors");
    return n > suffix && strcmp(name + n - suffix, ".safetensors") == 0 && strchr(name, '/') == NULL;
}

/* Opens each file that the map names, without duplicates. */
static weft_status add_shards(weft_safetensors *self, const char *directory, const char *index_path, json_t *map,
                              weft_error *err) {
    const char *tensor = NULL;
    json_t *value = NULL, *opened = json_object();
    weft_status status = opened == NULL ? weft_safetensors_no_memory(index_path, err) : WEFT_OK;
    json_object_foreach(map, tensor, value) {
        const char *name = json_string_value(value);
        char *path = NULL;
        bool is_there = false;
        if (status != WEFT_OK) break;
        if (!is_shard_name_good(name)) {
            status =
                weft_error_set(err, WEFT_E_DATA,
                               "%s: puts tensor '%s' into '%s'; allowed is the name of a .safetensors file beside it",
                               index_path, tensor, name == NULL ? "(no text)" : name);
            break;
        }
        if (json_object_get(opened, name) != NULL) continue;
        if (json_object_set_new(opened, name, json_true()) != 0 || asprintf(&path, "%s/%s", directory, name) < 0) {
            status = weft_safetensors_no_memory(index_path, err);
            break;
        }
        status = weft_file_exists(&is_there, path, err);
        if (status == WEFT_OK && !is_there)
            status = weft_error_set(err, WEFT_E_USER,
                                    "%s: is missing, but %s puts tensor '%s' into it; copy or download it again", path,
                                    index_path, tensor);
        else if (status == WEFT_OK) status = weft_safetensors_add(self, path, err);
        free(path);
    }
    json_decref(opened);
    return status;
}

/* Checks that each tensor is in the file named by the index, and that the files have no other tensors. */
static weft_status check_index(const weft_safetensors *self, const char *index_path, json_t *map, weft_error *err) {
    const char *name = NULL;
    json_t *value = NULL;
    for (int32_t i = 0; i < self->n_tensors; i++) {
        const weft_tensor *tensor = &self->tensors[i];
        const char *path = self->files[tensor->file].path;
        const char *said = json_string_value(json_object_get(map, tensor->name));
        if (said == NULL)
            return weft_error_set(err, WEFT_E_DATA, "%s: holds tensor '%s', which %s does not name", path, tensor->name,
                                  index_path);
        if (strcmp(strrchr(path, '/') + 1, said) != 0)
            return weft_error_set(err, WEFT_E_DATA, "%s: holds tensor '%s', which %s puts into '%s'", path,
                                  tensor->name, index_path, said);
    }
    json_object_foreach(map, name, value) {
        if (weft_safetensors_find(self, name) == NULL)
            return weft_error_set(err, WEFT_E_DATA, "%s: puts tensor '%s' into '%s', which does not hold it",
                                  index_path, name, json_string_value(value));
    }
    return WEFT_OK;
}

static weft_status open_index(weft_safetensors **out, const char *directory, const char *index_path, weft_error *err) {
    weft_safetensors *self = NULL;
    char *text = NULL;
    size_t bytes = 0;
    json_t *index = NULL, *map = NULL;
    weft_status status = weft_text_read(&text, &bytes, index_path, INDEX_LIMIT, err);
    if (status != WEFT_OK) return status;
    status = weft_json_parse(&index, text, bytes, 0, index_path, err);
    map = json_object_get(index, "weight_map");
    if (status == WEFT_OK && json_object_size(map) == 0)
        status =
            weft_error_set(err, WEFT_E_DATA, "%s: has no weight_map that names the file of each tensor", index_path);
    if (status == WEFT_OK) status = weft_safetensors_make(&self, json_object_size(map), index_path, err);
    if (status == WEFT_OK) status = add_shards(self, directory, index_path, map, err);
    status = weft_safetensors_give(&self, self, status);
    if (status == WEFT_OK) {
        status = check_index(self, index_path, map, err);
        if (status != WEFT_OK) weft_safetensors_close(self);
    }
    if (status == WEFT_OK) *out = self;
    json_decref(index);
    free(text);
    return status;
}

/* Detects torch.save files. They are not read, because they contain a program that creates the weights. */
static bool has_pickles(const char *directory) {
    static const char *const names[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    bool has = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = NULL;
        bool is_there = false;
        if (asprintf(&path, "%s/%s", directory, names[i]) < 0) continue;
        has = has || (weft_file_exists(&is_there, path, NULL) == WEFT_OK && is_there);
        free(path);
    }
    return has;
}

static weft_status refuse_pickles(const char *directory, weft_error *err) {
    return weft_error_set(err, WEFT_E_USER,
                          "%s: its weights are in pytorch_model.bin, which to read is to run what it holds; this makes "
                          "model.safetensors of "
                          "it, where transformers is installed: python3 -c 'import sys; from transformers import "
                          "AutoModelForCausalLM as m; "
                          "m.from_pretrained(sys.argv[1], torch_dtype=\"auto\").save_pretrained(sys.argv[1])' %s",
                          directory, directory);
}

static weft_status join_packed(weft_safetensors **files, weft_error *err) {
    const weft_status status = weft_bitsandbytes_join(*files, err);
    if (status == WEFT_OK) return WEFT_OK;
    weft_safetensors_close(*files);
    *files = NULL;
    return status;
}

weft_status weft_safetensors_open_directory(weft_safetensors **out, const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    char *single = NULL, *index = NULL;
    bool has_single = false, has_index = false;
    if (asprintf(&single, "%s/model.safetensors", directory) < 0) single = NULL;
    if (asprintf(&index, "%s/model.safetensors.index.json", directory) < 0) index = NULL;
    if (single == NULL || index == NULL) status = weft_safetensors_no_memory(directory, err);
    else status = weft_file_exists(&has_single, single, err);
    if (status == WEFT_OK && !has_single) status = weft_file_exists(&has_index, index, err);
    if (status != WEFT_OK) goto done;
    if (has_single) status = weft_safetensors_open(out, single, err);
    else if (has_index) status = open_index(out, directory, index, err);
    else if (has_pickles(directory)) status = refuse_pickles(directory, err);
    else
        status = weft_error_set(
            err, WEFT_E_USER,
            "%s: holds neither model.safetensors nor model.safetensors.index.json; weights in other "
            "formats are made into such files by save_pretrained of transformers, and [model] start = fresh "
            "begins without any",
            directory);
    if (status == WEFT_OK) status = join_packed(out, err);
done:
    free(index);
    free(single);
    return status;
}
