/* host/adapter/adapter_load.c: see adapter_load.h. */
#include "adapter/adapter_load.h"

#include "adapter/stack.h"
#include "adapter/tensors.h"
#include "base/units.h"
#include "base/text.h"
#include "model/convert.h"
#include "model/weights.h"

#include <jansson.h>
#include <stdlib.h>

typedef struct moved {
    const weft_tensor *tensor; /* NULL: absent */
    const weft_adapter_entry *entry;
} moved;

typedef struct loading {
    const weft_declared *declared;
    int32_t adapter;
    bool is_home; /* the directory also contains trained parameters of the base */
    char directory[WEFT_PATH_BYTES];
    weft_safetensors *files;
    weft_adapter_list list;
    const weft_tensor **tensors; /* [n_parameters] tensors with the memory layout; NULL: absent */
    moved *moved;                /* [n_parameters] transposed tensors, or parts of a table */
    int32_t *indices;            /* parameter indices for `moved` */
    int32_t n_moved;
} loading;

/* ---- checks ---- */

static weft_status check_tensor(const loading *self, const weft_tensor *tensor, const weft_tensor_spec *spec,
                                weft_error *err) {
    bool same = tensor->rank == spec->rank;
    char is[128] = "", should[128] = "";
    for (int32_t d = 0; same && d < spec->rank; d++) same = tensor->dims[d] == spec->dims[d];
    if (same && weft_dtype_is_floating(tensor->dtype)) return WEFT_OK;
    if (same)
        return weft_error_set(err, WEFT_E_DATA, "%s: '%s' is %s; F32, BF16 and F16 are read", self->directory,
                              tensor->name, weft_tensor_dtype_name(tensor->dtype));
    for (int32_t d = 0; d < tensor->rank; d++)
        weft_words_append(is, sizeof is, "%s%lld", d > 0 ? ", " : "", (long long)tensor->dims[d]);
    for (int32_t d = 0; d < spec->rank; d++)
        weft_words_append(should, sizeof should, "%s%lld", d > 0 ? ", " : "", (long long)spec->dims[d]);
    return weft_error_set(err, WEFT_E_DATA,
                          "%s: '%s' is (%s), and this model with this adapter needs (%s): the adapter was made for "
                          "another base, or with another rank",
                          self->directory, tensor->name, is, should);
}

static weft_status place_entry(loading *self, const weft_adapter_entry *entry, weft_error *err) {
    const weft_tensor_spec spec = weft_adapter_spec(entry, WEFT_F32);
    const weft_tensor *tensor = weft_safetensors_find(self->files, entry->tensor.name);
    if (tensor == NULL)
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: lacks '%s': the adapter was made with other targets than its " WEFT_ADAPTER_CONFIG
                              " contains, or for another model",
                              self->directory, entry->tensor.name);
    if (entry->is_moved) {
        self->moved[entry->parameter] = (moved){tensor, entry};
        self->indices[self->n_moved++] = entry->parameter;
    } else {
        self->tensors[entry->parameter] = tensor;
    }
    return check_tensor(self, tensor, &spec, err);
}

static bool is_placed(const loading *self, const weft_tensor *tensor) {
    for (int32_t i = 0; i < self->list.n; i++)
        if (strcmp(self->list.entries[i].tensor.name, tensor->name) == 0) return true;
    return false;
}

static weft_status refuse_untied(const loading *self, const weft_parameter *parameter, weft_error *err) {
    return weft_error_set(
        err, WEFT_E_DATA,
        "%s: '%s' and '%s' are one matrix in this model, and the adapter has trained only one of them. Fix: use a base "
        "that does not tie them, or train the adapter with ensure_weight_tying = true in PEFT",
        self->directory, parameter->name, parameter->aliases[0]);
}

/* True for a token table or head of a larger vocabulary than the model's. */
static bool has_more_rows(const weft_declared *declared, const weft_tensor *tensor, const weft_parameter *parameter) {
    return tensor->rank == 2 && parameter->rank == 2 && tensor->dims[1] == parameter->dims[1] &&
           parameter->dims[0] == declared->info.vocab_size && tensor->dims[0] > parameter->dims[0];
}

/* Assigns the tensor of a base module that was saved completely. Only the home directory has such tensors. */
static weft_status place_base(loading *self, const weft_tensor *tensor, weft_error *err) {
    const int32_t p = self->is_home ? weft_adapter_base_parameter(self->declared, self->adapter, tensor->name) : -1;
    const weft_parameter *parameter = p < 0 ? NULL : &self->declared->parameters[p];
    weft_tensor_spec spec = {.dtype = WEFT_F32};
    if (is_placed(self, tensor)) return WEFT_OK;
    if (parameter == NULL || weft_parameter_is_packed(parameter))
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: '%s' belongs to no weight of this model with this adapter: the adapter was made for "
                              "another base, or with other targets than its " WEFT_ADAPTER_CONFIG " says",
                              self->directory, tensor->name);
    if (has_more_rows(self->declared, tensor, parameter))
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: '%s' has %lld rows, and this model has %lld: the adapter was trained with added "
                              "tokens. Fix: set [tokenizer] add or pad as in its run",
                              self->directory, tensor->name, (long long)tensor->dims[0], (long long)parameter->dims[0]);
    spec.rank = parameter->rank;
    memcpy(spec.dims, parameter->dims, sizeof parameter->dims);
    if (self->tensors[p] != NULL && (tensor->bytes != self->tensors[p]->bytes ||
                                     memcmp(tensor->data, self->tensors[p]->data, (size_t)tensor->bytes)))
        return refuse_untied(self, parameter, err);
    self->tensors[p] = tensor;
    return check_tensor(self, tensor, &spec, err);
}

/* Fails if PEFT trained only one of two tied names: the other one kept its old values. */
static weft_status check_tied(const loading *self, int32_t p, weft_error *err) {
    const weft_parameter *parameter = &self->declared->parameters[p];
    const weft_tensor *tensor = self->tensors[p];
    int32_t names = 0;
    if (parameter->added || parameter->n_aliases == 0 || tensor == NULL) return WEFT_OK;
    for (int32_t i = 0; i < self->files->n_tensors; i++)
        names += weft_adapter_base_parameter(self->declared, self->adapter, self->files->tensors[i].name) == p;
    if (names > parameter->n_aliases || strstr(tensor->name, ".base_layer.") != NULL) return WEFT_OK;
    return refuse_untied(self, parameter, err);
}

/* ---- modules_to_save ---- */

/* True if a module on the parameter's path ends with the name, with PEFT's comparison. *exactly: the match starts at a
 * dot. */
static bool is_below(const char *parameter, const char *name, bool *exactly) {
    const size_t n = strlen(name);
    bool any = false;
    *exactly = false;
    for (const char *end = strchr(parameter, '.'); end != NULL; end = strchr(end + 1, '.')) {
        const size_t m = (size_t)(end - parameter);
        if (n > m || memcmp(end - n, name, n) != 0) continue;
        any = true;
        *exactly = *exactly || n == m || parameter[m - n - 1] == '.';
    }
    return any;
}

static weft_status refuse_saved(const char *directory, const char *name, const char *problem, weft_error *err) {
    return weft_error_set(
        err, WEFT_E_DATA,
        "%s/" WEFT_ADAPTER_CONFIG
        ": modules_to_save = \"%s\": %s. Allowed: modules of this model with tensors in " WEFT_ADAPTER_WEIGHTS
        ". Fix: save the adapter with this module, or remove the name",
        directory, name, problem);
}

/* Fails if the model has no module that this entry of modules_to_save names, or if `self` lacks a tensor of it. self:
 * may be NULL. */
static weft_status check_saved(const weft_declared *declared, const loading *self, const char *directory,
                               const char *name, weft_error *err) {
    bool known = false, any = false;
    char problem[600];
    for (int32_t p = 0; p < declared->n_parameters; p++) {
        const weft_parameter *parameter = &declared->parameters[p];
        for (int32_t i = 0; !parameter->added && i <= parameter->n_aliases; i++) {
            const char *path = i == 0 ? parameter->name : parameter->aliases[i - 1];
            bool exactly = false;
            if (!is_below(path, name, &exactly)) continue;
            known = true;
            any = any || self == NULL || self->tensors[p] != NULL;
            if (!exactly || self == NULL || self->tensors[p] != NULL) continue;
            (void)snprintf(problem, sizeof problem, WEFT_ADAPTER_WEIGHTS " lacks '%.500s'", path);
            return refuse_saved(directory, name, problem, err);
        }
    }
    if (!known) return refuse_saved(directory, name, "this model has no such module", err);
    return any ? WEFT_OK : refuse_saved(directory, name, WEFT_ADAPTER_WEIGHTS " has no tensor of such a module", err);
}

static weft_status check_all_saved(const weft_declared *declared, const loading *self, const char *directory,
                                   weft_error *err) {
    char path[WEFT_PATH_BYTES];
    json_t *config = NULL;
    const json_t *list = NULL;
    weft_status status = weft_path_join(path, directory, WEFT_ADAPTER_CONFIG, err);
    if (status == WEFT_OK) status = weft_json_read(&config, path, 0, err);
    if (status != WEFT_OK) return status;
    list = json_object_get(config, "modules_to_save");
    if (json_is_true(list) || json_string_length(list) > 0 || json_object_size(list) > 0 || json_is_number(list))
        status =
            weft_error_set(err, WEFT_E_DATA, "%s: modules_to_save is not valid. Allowed: null, a list of names", path);
    for (size_t i = 0; i < json_array_size(list) && status == WEFT_OK; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        status = name != NULL
                     ? check_saved(declared, self, directory, name, err)
                     : weft_error_set(err, WEFT_E_DATA,
                                      "%s: modules_to_save is not valid. Allowed: null, a list of names", path);
    }
    json_decref(config);
    return status;
}

weft_status weft_adapter_check_modules(const weft_declared *declared, const char *directory, weft_error *err) {
    return check_all_saved(declared, NULL, directory, err);
}

/* Returns the adapters to load: all, or those in the directory. */
static weft_status find_held(weft_held *out, const weft_declared *declared, const char *directory, uint32_t flags,
                             weft_error *err) {
    const weft_stack stack = weft_stack_of(declared);
    if ((flags & WEFT_ADAPTER_SOME) != 0) return weft_stack_held(out, &stack, directory, err);
    *out = weft_stack_all(&stack);
    return WEFT_OK;
}

static weft_status open_loading(loading *self, const weft_declared *declared, const weft_held *held, int32_t adapter,
                                const char *directory, weft_error *err) {
    const weft_stack stack = weft_stack_of(declared);
    const size_t n = (size_t)declared->n_parameters + 1;
    char path[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    memset(self, 0, sizeof *self);
    self->declared = declared;
    self->adapter = adapter;
    self->is_home = adapter == held->home;
    status = weft_stack_source(self->directory, &stack, held, adapter, directory, err);
    if (status == WEFT_OK) status = weft_path_join(path, self->directory, WEFT_ADAPTER_WEIGHTS, err);
    self->tensors = calloc(n, sizeof(const weft_tensor *));
    self->moved = calloc(n, sizeof *self->moved);
    self->indices = calloc(n, sizeof *self->indices);
    if (status == WEFT_OK && (self->tensors == NULL || self->moved == NULL || self->indices == NULL))
        status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its list of tensors", path);
    if (status == WEFT_OK) status = weft_safetensors_open(&self->files, path, err);
    if (status == WEFT_OK) status = weft_adapter_list_make(&self->list, declared, adapter, true, err);
    for (int32_t i = 0; i < self->list.n && status == WEFT_OK; i++)
        status = place_entry(self, &self->list.entries[i], err);
    for (int32_t i = 0; status == WEFT_OK && i < self->files->n_tensors; i++)
        status = place_base(self, &self->files->tensors[i], err);
    for (int32_t p = 0; status == WEFT_OK && p < declared->n_parameters; p++) status = check_tied(self, p, err);
    return status == WEFT_OK && self->is_home ? check_all_saved(declared, self, self->directory, err) : status;
}

static void close_loading(loading *self) {
    weft_adapter_list_free(&self->list);
    weft_safetensors_close(self->files);
    free(self->indices);
    free(self->moved);
    free((void *)self->tensors);
}

/* ---- reading ---- */

static weft_status fill_moved(void *context, int32_t parameter, int64_t first, int64_t n, int32_t dtype, void *out,
                              weft_error *err) {
    const loading *self = context;
    const weft_tensor *tensor = self->moved[parameter].tensor;
    const weft_adapter_entry *entry = self->moved[parameter].entry;
    const int64_t width = weft_dtype_bytes(tensor->dtype), to = weft_dtype_bytes(dtype);
    const int64_t columns = self->declared->parameters[parameter].dims[1];
    (void)err;
    for (int64_t e = first; e < first + n; e++) {
        float from = 0.0f; /* buffer for any of the three types, aligned */
        memcpy(&from, tensor->data + weft_adapter_place(entry, e / columns, e % columns) * width, (size_t)width);
        (void)weft_convert((char *)out + (e - first) * to, dtype, &from, tensor->dtype, 1);
    }
    return WEFT_OK;
}

/* PEFT saves a frozen table that its adapter changes as `base_layer`. Fails if the base's values differ from it. */
static weft_status check_base_layer(const loading *self, int32_t p, weft_error *err) {
    const weft_parameter *parameter = &self->declared->parameters[p];
    const char *slash = strrchr(self->declared->config_path, '/');
    char base[WEFT_PATH_BYTES] = ".";
    weft_safetensors *files = NULL;
    const weft_tensor *tensor = NULL;
    bool same = false;
    weft_status status = WEFT_OK;
    if (slash != NULL)
        (void)snprintf(base, sizeof base, "%.*s", (int)(slash - self->declared->config_path),
                       self->declared->config_path);
    status = weft_weights_open(&files, self->declared, base, err);
    if (status == WEFT_OK) tensor = weft_weights_tensor(files, parameter);
    if (tensor != NULL && tensor->numel == self->tensors[p]->numel && weft_dtype_is_floating(tensor->dtype))
        status = weft_weights_same(&same, self->files, self->tensors[p], files, tensor, err);
    weft_safetensors_close(files);
    if (status != WEFT_OK || same) return status;
    return weft_error_set(err, WEFT_E_USER,
                          "%s: '%s' differs from '%s' of the base in %s, and is frozen, so that the files of this run "
                          "would lack it. Fix: weft merge %s %s OUT, and continue from OUT",
                          self->directory, self->tensors[p]->name, parameter->name, base, base, self->directory);
}

/* Fails if the file contains a frozen base parameter, which a later save would lose. */
static weft_status check_kept(const loading *self, weft_error *err) {
    for (int32_t p = 0; p < self->declared->n_parameters; p++) {
        const weft_parameter *parameter = &self->declared->parameters[p];
        if (self->tensors[p] == NULL || parameter->added || parameter->trainable) continue;
        if (strstr(self->tensors[p]->name, ".base_layer.") != NULL) {
            const weft_status status = check_base_layer(self, p, err);
            if (status != WEFT_OK) return status;
            continue;
        }
        return weft_error_set(
            err, WEFT_E_USER,
            "%s: '%s' was trained completely with the adapter, and [train] trainable does not contain it, so that the "
            "files of this run would lack it. Fix: [train] trainable = adapter, %s",
            self->directory, parameter->name, parameter->name);
    }
    return WEFT_OK;
}

weft_status weft_adapter_check(const weft_declared *declared, const char *directory, uint32_t flags, weft_error *err) {
    weft_held held = {.n = 0};
    weft_status status = find_held(&held, declared, directory, flags, err);
    for (int32_t i = 0; i < declared->n_adapters && status == WEFT_OK; i++) {
        loading self;
        if (!held.has[i]) continue;
        status = open_loading(&self, declared, &held, i, directory, err);
        if (status == WEFT_OK && (flags & WEFT_ADAPTER_SAVED) != 0) status = check_kept(&self, err);
        close_loading(&self);
    }
    return status;
}

static weft_status load_one(const weft_region *region, const weft_held *held, int32_t adapter, const char *directory,
                            weft_error *err) {
    loading self;
    weft_status status = open_loading(&self, region->declared, held, adapter, directory, err);
    if (status == WEFT_OK) status = weft_weights_read(region, self.files, self.tensors, err);
    if (status == WEFT_OK) status = weft_region_fill(region, self.indices, self.n_moved, fill_moved, &self, err);
    close_loading(&self);
    return status;
}

weft_status weft_adapter_load(const weft_region *region, const char *directory, uint32_t flags, weft_error *err) {
    weft_held held = {.n = 0};
    weft_status status = find_held(&held, region->declared, directory, flags, err);
    for (int32_t i = 0; i < region->declared->n_adapters && status == WEFT_OK; i++)
        if (held.has[i]) status = load_one(region, &held, i, directory, err);
    return status;
}

static weft_status take_values(const loading *self, float **out, int32_t p, weft_error *err) {
    const int64_t n = self->declared->parameters[p].numel;
    const weft_tensor *tensor = self->tensors[p];
    char *stored = NULL;
    weft_status status = WEFT_OK;
    if (tensor == NULL && self->moved[p].tensor == NULL) return WEFT_OK;
    *out = malloc((size_t)weft_f32_bytes(n) + 1);
    stored = malloc((size_t)weft_f32_bytes(n) + 1);
    if (*out == NULL || stored == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for the adapter", self->directory);
    else if (tensor == NULL) status = fill_moved((void *)(uintptr_t)self, p, 0, n, WEFT_F32, *out, err);
    else status = weft_safetensors_read(self->files, stored, tensor, 0, tensor->bytes, err);
    if (status == WEFT_OK && tensor != NULL) (void)weft_convert(*out, WEFT_F32, stored, tensor->dtype, n);
    free(stored);
    return status;
}

static weft_status values_of_one(float **out, const weft_declared *declared, const weft_held *held, int32_t adapter,
                                 const char *directory, weft_error *err) {
    loading self;
    weft_status status = open_loading(&self, declared, held, adapter, directory, err);
    for (int32_t p = 0; p < declared->n_parameters && status == WEFT_OK; p++)
        status = take_values(&self, &out[p], p, err);
    close_loading(&self);
    return status;
}

weft_status weft_adapter_values(float **out, const weft_declared *declared, const char *directory, weft_error *err) {
    weft_held held = {.n = 0};
    weft_status status = find_held(&held, declared, directory, 0, err);
    for (int32_t i = 0; i < declared->n_adapters && status == WEFT_OK; i++)
        status = values_of_one(out, declared, &held, i, directory, err);
    return status;
}
