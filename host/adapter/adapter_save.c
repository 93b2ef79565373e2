/* host/adapter/adapter_save.c: see adapter_save.h. What lies in a file as it lies in memory is written by whoever keeps
 * it; a matrix that the file has the other way round is small, and rank 0 writes it. */
#include "adapter/adapter_save.h"

#include "adapter/stack.h"
#include "adapter/tensors.h"
#include "base/file.h"
#include "base/hash.h"
#include "model/convert.h"
#include "plugin/enter.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>

typedef struct saving {
    const weft_adapter_saving *what;
    int32_t adapter;
    bool has_base;                   /* what is trained of the base is saved here */
    char directory[WEFT_PATH_BYTES]; /* of this adapter */
    weft_adapter_list list;
    weft_tensor_spec *specs; /* [list.n] */
    int32_t *parameters;     /* [list.n]; -1: rank 0 writes it after */
    char path[WEFT_PATH_BYTES];
} saving;

static weft_status no_memory(const char *path, weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory left to write the adapter", path);
}

/* One that is not beside the others. */
static weft_status make_directory(const saving *self, weft_error *err) {
    const bool is_there = strcmp(self->directory, self->what->directory) == 0;
    if (is_there || !weft_peers_first(self->what->region->peers) || mkdir(self->directory, 0777) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "the directory %s cannot be made: %s", self->directory, strerror(errno));
}

static weft_status prepare(saving *self, weft_error *err) {
    const weft_declared *declared = self->what->region->declared;
    weft_status status = weft_stack_place(self->directory, declared, self->adapter, self->what->directory, err);
    self->has_base = !self->what->own_alone && self->adapter == weft_stack_home(declared);
    if (status == WEFT_OK) status = make_directory(self, err);
    if (status == WEFT_OK) status = weft_path_join(self->path, self->directory, WEFT_ADAPTER_WEIGHTS, err);
    if (status == WEFT_OK) status = weft_adapter_list_make(&self->list, declared, self->adapter, !self->has_base, err);
    if (status != WEFT_OK) return status;
    self->specs = calloc((size_t)self->list.n + 1, sizeof *self->specs);
    self->parameters = calloc((size_t)self->list.n + 1, sizeof *self->parameters);
    if (self->specs == NULL || self->parameters == NULL) return no_memory(self->path, err);
    for (int32_t i = 0; i < self->list.n; i++) {
        self->specs[i] = weft_adapter_spec(&self->list.entries[i], self->what->dtype);
        self->parameters[i] = self->list.entries[i].tensor.transposed ? -1 : self->list.entries[i].parameter;
    }
    return WEFT_OK;
}

/* ---- the other way round ---- */

/* values: all of the parameter, (m, n); out: (n, m) in dtype. */
static void transpose(char *out, const float *values, int64_t m, int64_t n, int32_t dtype) {
    const int64_t width = weft_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < m; k++)
            (void)weft_convert(out + (i * m + k) * width, dtype, &values[k * n + i], WEFT_F32, 1);
}

/* All of a parameter in fp32, on every rank. [collective] */
static weft_status read_whole(const weft_region *region, int32_t parameter, float *values, void *staging,
                              weft_error *err) {
    const int64_t numel = region->declared->parameters[parameter].numel;
    weft_status status = WEFT_OK;
    for (int64_t first = 0; first < numel && status == WEFT_OK; first += WEFT_REGION_PIECE) {
        const int64_t n = numel - first < WEFT_REGION_PIECE ? numel - first : WEFT_REGION_PIECE;
        const void *piece = NULL;
        status = weft_region_read(region, parameter, first, n, staging, &piece, err);
        if (status == WEFT_OK)
            (void)weft_convert(values + first, WEFT_F32, piece, weft_region_dtype(region, parameter), n);
    }
    return status;
}

/* SHA-256 over those of the tensor's grid cells, as region_write.c has them of what it writes. */
static weft_status tell_root(const saving *self, int32_t i, const char *bytes, int64_t n, const weft_roots *roots,
                             weft_error *err) {
    const int64_t cell = weft_dtype_span(self->specs[i].dtype, self->what->region->layout->grid);
    unsigned char digest[WEFT_HASH_BYTES];
    weft_hash one = {0}, root = {0};
    char hex[65];
    weft_status status = weft_hash_start(&root, err);
    for (int64_t at = 0; at < n && status == WEFT_OK; at += cell) {
        status = weft_hash_start(&one, err);
        if (status != WEFT_OK) break;
        weft_hash_put(&one, bytes + at, (size_t)(n - at < cell ? n - at : cell));
        status = weft_hash_finish(&one, digest, err);
        if (status == WEFT_OK) weft_hash_put(&root, digest, sizeof digest);
    }
    if (status == WEFT_OK) status = weft_hash_finish(&root, digest, err);
    if (status == WEFT_OK) weft_hash_hex(hex, digest);
    if (status == WEFT_OK) status = roots->tell(roots->context, self->path, self->specs[i].name, hex, err);
    weft_hash_free(&one);
    weft_hash_free(&root);
    return status;
}

static weft_status put_transposed(const saving *self, int32_t i, const float *values, const weft_roots *roots,
                                  weft_error *err) {
    const weft_tensor_spec *spec = &self->specs[i];
    const int64_t bytes = weft_dtype_span(spec->dtype, spec->dims[0] * spec->dims[1]);
    weft_tensor_writer *writer = NULL;
    char *out = malloc((size_t)bytes);
    weft_status status = out == NULL ? no_memory(self->path, err) : WEFT_OK;
    if (status == WEFT_OK) status = weft_tensor_writer_join(&writer, self->path, self->specs, self->list.n, err);
    if (status == WEFT_OK) {
        transpose(out, values, spec->dims[1], spec->dims[0], spec->dtype);
        status = weft_tensor_writer_write(writer, i, 0, out, bytes, err);
        if (status == WEFT_OK) status = weft_tensor_writer_finish(writer, err);
        else weft_tensor_writer_cancel(writer);
    }
    if (status == WEFT_OK && roots != NULL) status = tell_root(self, i, out, bytes, roots, err);
    free(out);
    return status;
}

static weft_status write_transposed(const saving *self, int32_t i, const weft_roots *roots, weft_error *err) {
    const weft_region *region = self->what->region;
    const int32_t parameter = self->list.entries[i].parameter;
    float *values = malloc((size_t)weft_f32_bytes(region->declared->parameters[parameter].numel) + 1);
    void *staging = malloc((size_t)weft_f32_bytes(WEFT_REGION_PIECE));
    weft_status status = values == NULL || staging == NULL ? no_memory(self->path, err) : WEFT_OK;
    status = weft_peers_agree(region->peers, status, err);
    if (status == WEFT_OK) status = read_whole(region, parameter, values, staging, err);
    if (status == WEFT_OK && weft_peers_first(region->peers)) status = put_transposed(self, i, values, roots, err);
    free(staging);
    free(values);
    return weft_peers_agree(region->peers, status, err);
}

static weft_status write_tensors(saving *self, const weft_roots *roots, weft_error *err) {
    const weft_region_file file = {self->what->region, self->path, self->specs, self->parameters, self->list.n};
    weft_status status = weft_region_write(&file, roots, err);
    for (int32_t i = 0; i < self->list.n && status == WEFT_OK; i++)
        if (self->parameters[i] < 0) status = write_transposed(self, i, roots, err);
    return status;
}

/* ---- adapter_config.json ---- */

/* What the adapter says of itself; else its id as PEFT spells kinds: "vera" is VERA. */
static json_t *ask_config(const saving *self) {
    const weft_joined_adapter *joined = &self->what->region->declared->adapters[self->adapter];
    const weft_adapter_plugin *plugin = joined->plugin;
    const weft_adapter_origin *origin = &self->what->origins[self->adapter];
    char type[sizeof origin->plugin];
    size_t i = 0;
    if (WEFT_HAS(plugin, config_json) && plugin->config_json != NULL) {
        const weft_doing before = weft_plugin_enter(plugin, "config_json");
        const char *text = plugin->config_json(joined->adapter);
        (void)weft_plugin_leave(before, WEFT_OK, NULL);
        return text == NULL ? NULL : json_loads(text, 0, NULL);
    }
    for (i = 0; i + 1 < sizeof type && origin->plugin[i] != '\0'; i++)
        type[i] = origin->plugin[i] == '-' ? '_' : (char)toupper((unsigned char)origin->plugin[i]);
    type[i] = '\0';
    return json_pack("{s:s}", "peft_type", type);
}

/* "lm_head.weight": "lm_head". */
static json_t *module_of(const weft_declared *declared, const weft_adapter_entry *entry) {
    const char *end = entry->alias == NULL ? NULL : strrchr(entry->alias, '.');
    if (entry->alias == NULL)
        return json_string(declared->modules[declared->parameters[entry->parameter].module]->path);
    return json_stringn(entry->alias, end == NULL ? strlen(entry->alias) : (size_t)(end - entry->alias));
}

/* Modules of the base that are trained, by their paths, which PEFT compares with ends of names; or null. Of what is
 * tied PEFT would train one and leave the other as it was, if it were not told that they stay one. */
static json_t *list_modules(const saving *self, bool *tied) {
    const weft_declared *declared = self->what->region->declared;
    json_t *list = json_array();
    *tied = false;
    for (int32_t i = 0; i < self->list.n; i++) {
        const weft_adapter_entry *entry = &self->list.entries[i];
        const weft_parameter *p = &declared->parameters[entry->parameter];
        if (!p->added && !p->is_bias) (void)json_array_append_new(list, module_of(declared, entry));
        *tied |= entry->alias != NULL;
    }
    if (json_array_size(list) > 0) return list;
    json_decref(list);
    return json_null();
}

static weft_status write_config(const saving *self, weft_error *err) {
    char path[WEFT_PATH_BYTES], *text = NULL;
    json_t *config = ask_config(self);
    bool tied = false;
    weft_status status = weft_path_join(path, self->directory, WEFT_ADAPTER_CONFIG, err);
    if (status == WEFT_OK && !json_is_object(config))
        status = weft_plugin_blame(
            self->what->region->declared->adapters[self->adapter].plugin,
            weft_error_set(err, WEFT_E_PLUGIN, "the adapter plugin's config_json is no object in JSON"), err);
    if (status == WEFT_OK) {
        (void)json_object_set_new(config, "base_model_name_or_path", json_string(self->what->base));
        (void)json_object_set_new(config, "task_type", json_string("CAUSAL_LM"));
        (void)json_object_set_new(config, "inference_mode", json_true());
        (void)json_object_set_new(config, "modules_to_save", list_modules(self, &tied));
        if (tied) (void)json_object_set_new(config, "ensure_weight_tying", json_true());
        text = json_dumps(config, JSON_INDENT(2) | JSON_SORT_KEYS);
        status = text == NULL ? no_memory(path, err) : weft_file_replace(path, text, strlen(text), err);
    }
    free(text);
    json_decref(config);
    return status;
}

/* ---- the whole ---- */

static weft_status save_one(const weft_adapter_saving *what, int32_t adapter, const weft_roots *roots,
                            weft_error *err) {
    saving self = {.what = what, .adapter = adapter};
    const weft_peers *peers = what->region->peers;
    weft_status status = weft_peers_agree(peers, prepare(&self, err), err);
    if (status == WEFT_OK) status = write_tensors(&self, roots, err);
    if (status == WEFT_OK && weft_peers_first(peers)) {
        status = write_config(&self, err);
        if (status == WEFT_OK) status = weft_origin_save(&what->origins[adapter], self.directory, err);
        if (status == WEFT_OK) status = weft_directory_sync(self.directory, err);
    }
    free(self.parameters);
    free(self.specs);
    weft_adapter_list_free(&self.list);
    return weft_peers_agree(peers, status, err);
}

weft_status weft_adapter_save(const weft_adapter_saving *what, const weft_roots *roots, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < what->region->declared->n_adapters && status == WEFT_OK; i++)
        status = save_one(what, i, roots, err);
    return status;
}
