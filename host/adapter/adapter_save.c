/* host/adapter/adapter_save.c: see adapter.h. Tensors with the memory layout are written by the ranks that store
 * them. Transposed tensors and parts of tables are small; rank 0 writes them. */
#include "adapter/adapter.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
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
    bool has_base;                   /* trained parameters of the base are saved here */
    char directory[WEFT_PATH_BYTES]; /* directory of this adapter */
    weft_adapter_list list;
    weft_tensor_spec *specs; /* [list.n_tensors] */
    int32_t *parameters;     /* [list.n_tensors]; -1: rank 0 writes it later */
    char path[WEFT_PATH_BYTES];
} saving;

static weft_status prepare(saving *self, weft_error *err) {
    const weft_declared *declared = self->what->region->declared;
    weft_status status = weft_stack_place(self->directory, declared, self->adapter, self->what->directory, err);
    self->has_base = !self->what->own_alone && self->adapter == weft_stack_home(declared);
    if (status == WEFT_OK && strcmp(self->directory, self->what->directory) != 0 &&
        weft_process_group_is_rank_0(self->what->region->peers) && mkdir(self->directory, 0777) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the directory %s cannot be created: %s", self->directory,
                                strerror(errno));
    if (status == WEFT_OK) status = weft_path_join(self->path, self->directory, WEFT_ADAPTER_WEIGHTS, err);
    if (status == WEFT_OK) status = weft_adapter_list_make(&self->list, declared, self->adapter, !self->has_base, err);
    if (status != WEFT_OK) return status;
    self->specs = weft_alloc(self->list.n, sizeof *self->specs);
    self->parameters = weft_alloc(self->list.n, sizeof *self->parameters);
    for (int32_t i = 0; i < self->list.n; i++) {
        const weft_adapter_entry *entry = &self->list.entries[i];
        self->specs[entry->at] = weft_adapter_spec(entry, self->what->dtype);
        self->parameters[entry->at] = entry->is_moved ? -1 : entry->parameter;
    }
    return WEFT_OK;
}

/* ---- tensors with another layout in the file ---- */

/* Reads a parameter (m, n) on every rank and writes it to its place in the file's tensor of `dtype`. [collective] */
static weft_status move(char *out, const weft_region *region, const weft_adapter_entry *entry, int32_t dtype,
                        void *staging, weft_error *err) {
    const weft_parameter *p = &region->declared->parameters[entry->parameter];
    const int32_t from = weft_region_dtype(region, entry->parameter);
    const int64_t width = weft_dtype_bytes(dtype), n = p->dims[1];
    weft_status status = WEFT_OK;
    for (int64_t first = 0; first < p->numel && status == WEFT_OK; first += WEFT_REGION_PIECE) {
        const int64_t some = weft_smaller(WEFT_REGION_PIECE, p->numel - first);
        const void *piece = NULL;
        status = weft_region_read(region, entry->parameter, first, some, staging, &piece, err);
        for (int64_t e = first; e < first + some && status == WEFT_OK; e++)
            (void)weft_convert(out + weft_adapter_place(entry, e / n, e % n) * width, dtype,
                               (const char *)piece + (e - first) * weft_dtype_bytes(from), from, 1);
    }
    return status;
}

/* Reports SHA-256 over the hashes of the tensor's grid cells, as region_write.c does. */
static weft_status report_root(const saving *self, int32_t i, const char *bytes, int64_t n, const weft_roots *roots,
                               weft_error *err) {
    const int64_t cell = weft_dtype_span(self->specs[i].dtype, self->what->region->layout->grid);
    const size_t cells = (size_t)((n + cell - 1) / cell);
    unsigned char *digests = weft_alloc(cells, WEFT_HASH_BYTES);
    char hex[65];
    weft_status status = weft_hash_cells(digests, bytes, n, cell, err);
    if (status == WEFT_OK) status = weft_hash_text(hex, digests, cells * WEFT_HASH_BYTES, err);
    if (status == WEFT_OK) status = roots->tell(roots->context, self->path, self->specs[i].name, hex, err);
    free(digests);
    return status;
}

/* Writes tensor i, which the ranks gather and rank 0 writes. */
static weft_status write_moved(const saving *self, int32_t i, const weft_roots *roots, weft_error *err) {
    const weft_region *region = self->what->region;
    const weft_tensor_spec *spec = &self->specs[i];
    const int64_t bytes = weft_dtype_span(spec->dtype, spec->dims[0] * spec->dims[1]);
    char *moved = malloc((size_t)bytes); /* sized by the plugin */
    void *staging = weft_realloc(NULL, weft_f32_bytes(WEFT_REGION_PIECE), 1);
    weft_tensor_writer *writer = NULL;
    weft_status status = WEFT_OK;
    if (moved == NULL) status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for '%s'", self->path, spec->name);
    status = weft_process_group_agree(region->peers, status, err);
    for (int32_t k = 0; k < self->list.n && status == WEFT_OK; k++)
        if (self->list.entries[k].at == i)
            status = move(moved, region, &self->list.entries[k], spec->dtype, staging, err);
    if (status == WEFT_OK && weft_process_group_is_rank_0(region->peers)) {
        status = weft_tensor_writer_open(&writer, self->path, self->specs, self->list.n_tensors, false, err);
        if (status == WEFT_OK) status = weft_tensor_writer_write(writer, i, 0, moved, bytes, err);
        if (status == WEFT_OK) status = weft_tensor_writer_finish(writer, err);
        else weft_tensor_writer_cancel(writer);
        if (status == WEFT_OK && roots != NULL) status = report_root(self, i, moved, bytes, roots, err);
    }
    free(staging);
    free(moved);
    return weft_process_group_agree(region->peers, status, err);
}

/* ---- adapter_config.json ---- */

/* Returns the adapter's own config, or {"peft_type"} with its id in PEFT's style: "vera" is VERA. */
static json_t *query_config(const saving *self) {
    const weft_joined_adapter *joined = &self->what->region->declared->adapters[self->adapter];
    const weft_adapter_plugin *plugin = joined->plugin;
    const weft_adapter_origin *origin = &self->what->origins[self->adapter];
    char type[sizeof origin->plugin];
    size_t i = 0;
    if (WEFT_HAS(plugin, config_json) && plugin->config_json != NULL) {
        const char *text = NULL;
        WEFT_PLUGIN_QUERY(text, plugin, config_json, joined->adapter);
        return text == NULL ? NULL : json_loads(text, 0, NULL);
    }
    for (i = 0; i + 1 < sizeof type && origin->plugin[i] != '\0'; i++)
        type[i] = origin->plugin[i] == '-' ? '_' : (char)toupper((unsigned char)origin->plugin[i]);
    type[i] = '\0';
    return json_pack("{s:s}", "peft_type", type);
}

/* Returns "lm_head" for "lm_head.weight". */
static json_t *module_of(const weft_declared *declared, const weft_adapter_entry *entry) {
    const char *end = entry->alias == NULL ? NULL : strrchr(entry->alias, '.');
    if (entry->alias == NULL)
        return json_string(declared->modules[declared->parameters[entry->parameter].module]->path);
    return json_stringn(entry->alias, end == NULL ? strlen(entry->alias) : (size_t)(end - entry->alias));
}

/* Lists trained modules of the base by path, which PEFT compares with the ends of names; NULL if there is no such
 * module. Sets *tied for tied parameters: without ensure_weight_tying PEFT would train one and leave the other
 * unchanged. */
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
    return NULL;
}

static weft_status write_config(const saving *self, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    json_t *config = query_config(self), *modules = NULL;
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
        modules = list_modules(self, &tied);
        if (modules != NULL) (void)json_object_set_new(config, "modules_to_save", modules);
        if (tied) (void)json_object_set_new(config, "ensure_weight_tying", json_true());
        status = weft_file_write_json(path, config, JSON_INDENT(2) | JSON_SORT_KEYS, err);
    }
    json_decref(config);
    return status;
}

/* ---- save ---- */

static weft_status save_one(const weft_adapter_saving *what, int32_t adapter, const weft_roots *roots,
                            weft_error *err) {
    saving self = {.what = what, .adapter = adapter};
    const weft_process_group *peers = what->region->peers;
    weft_status status = weft_process_group_agree(peers, prepare(&self, err), err);
    const weft_region_file file = {what->region, self.path, self.specs, self.parameters, self.list.n_tensors};
    if (status == WEFT_OK) status = weft_region_write(&file, roots, err);
    for (int32_t i = 0; i < self.list.n_tensors && status == WEFT_OK; i++)
        if (self.parameters[i] < 0) status = write_moved(&self, i, roots, err);
    if (status == WEFT_OK && weft_process_group_is_rank_0(peers)) {
        status = write_config(&self, err);
        if (status == WEFT_OK) status = weft_origin_save(&what->origins[adapter], self.directory, err);
        if (status == WEFT_OK) status = weft_directory_sync(self.directory, err);
    }
    free(self.parameters);
    free(self.specs);
    free(self.list.entries);
    return weft_process_group_agree(peers, status, err);
}

weft_status weft_adapter_save(const weft_adapter_saving *what, const weft_roots *roots, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < what->region->declared->n_adapters && status == WEFT_OK; i++)
        status = save_one(what, i, roots, err);
    return status;
}
