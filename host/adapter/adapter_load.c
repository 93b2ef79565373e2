/* host/adapter/adapter_load.c: see adapter.h. */
#include "adapter/adapter.h"

#include "base/alloc.h"
#include "base/text.h"
#include "model/convert.h"
#include "model/weights.h"

#include <jansson.h>
#include <stdlib.h>

typedef struct loading {
    const weft_declared *declared;
    int32_t adapter;
    bool is_home; /* the directory also contains trained parameters of the base */
    char directory[WEFT_PATH_BYTES];
    weft_safetensors *files;
    weft_adapter_list list;
    const weft_tensor **tensors;      /* [n_parameters] tensors with the memory layout; NULL: absent */
    const weft_adapter_entry **moved; /* [n_parameters] of transposed tensors, or parts of a table; NULL: absent */
    int32_t *indices;                 /* parameter indices for `moved` */
    int32_t n_moved;
} loading;

/* ---- checks ---- */

static weft_status check_tensor(const loading *self, const weft_tensor *tensor, const weft_tensor_spec *spec,
                                weft_error *err) {
    const bool same = weft_tensor_has_dims(tensor, spec->dims, spec->rank);
    char is[WEFT_DIMS_BYTES], should[WEFT_DIMS_BYTES];
    if (same && weft_is_convertible(tensor->dtype)) return WEFT_OK;
    if (same)
        return weft_error_set(err, WEFT_E_DATA, "%s: '%s' is %s. Allowed: F32, BF16, F16", self->directory,
                              tensor->name, weft_tensor_dtype_name(tensor->dtype));
    weft_tensor_print_dims(is, tensor->dims, tensor->rank);
    weft_tensor_print_dims(should, spec->dims, spec->rank);
    return weft_error_set(err, WEFT_E_DATA,
                          "%s: '%s' is %s, and this model with this adapter needs %s: the adapter was made for "
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
        self->moved[entry->parameter] = entry;
        self->indices[self->n_moved++] = entry->parameter;
    } else {
        self->tensors[entry->parameter] = tensor;
    }
    return check_tensor(self, tensor, &spec, err);
}

static weft_status refuse_untied(const loading *self, const weft_parameter *parameter, weft_error *err) {
    return weft_error_set(
        err, WEFT_E_DATA,
        "%s: '%s' and '%s' are one matrix in this model, and the adapter has trained only one of them. Fix: use a base "
        "that does not tie them, or train the adapter with ensure_weight_tying = true in PEFT",
        self->directory, parameter->name, parameter->aliases[0]);
}

/* Assigns the tensor of a base module that was saved completely. Only the home directory has such tensors. */
static weft_status place_base(loading *self, const weft_tensor *tensor, weft_error *err) {
    const int32_t p = self->is_home ? weft_adapter_base_parameter(self->declared, self->adapter, tensor->name) : -1;
    const weft_parameter *parameter = p < 0 ? NULL : &self->declared->parameters[p];
    weft_tensor_spec spec = {.dtype = WEFT_F32};
    for (int32_t i = 0; i < self->list.n; i++)
        if (strcmp(self->list.entries[i].tensor.name, tensor->name) == 0) return WEFT_OK;
    if (parameter == NULL || weft_parameter_is_packed(parameter))
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: '%s' belongs to no weight of this model with this adapter: the adapter was made for "
                              "another base, or with other targets than its " WEFT_ADAPTER_CONFIG " contains",
                              self->directory, tensor->name);
    if (tensor->rank == 2 && parameter->rank == 2 && tensor->dims[1] == parameter->dims[1] &&
        parameter->dims[0] == self->declared->info.vocab_size && tensor->dims[0] > parameter->dims[0])
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
    bool good = true;
    weft_status status = weft_path_join(path, directory, WEFT_ADAPTER_CONFIG, err);
    if (status == WEFT_OK) status = weft_json_read(&config, path, 0, err);
    if (status != WEFT_OK) return status;
    list = json_object_get(config, "modules_to_save");
    good = !json_is_true(list) && json_string_length(list) == 0 && json_object_size(list) == 0 && !json_is_number(list);
    for (size_t i = 0; i < json_array_size(list) && good && status == WEFT_OK; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        good = name != NULL;
        if (good) status = check_saved(declared, self, directory, name, err);
    }
    if (!good)
        status =
            weft_error_set(err, WEFT_E_DATA, "%s: modules_to_save is not valid. Allowed: null, a list of names", path);
    json_decref(config);
    return status;
}

weft_status weft_adapter_check_modules(const weft_declared *declared, const char *directory, weft_error *err) {
    return check_all_saved(declared, NULL, directory, err);
}

/* Removes the wrappers' parts of names, which PEFT saves if a module was wrapped before the adapter was added. */
static weft_status unwrap_names(weft_safetensors *files, const char *directory, weft_error *err) {
    static const char *const wrappers[] = {"._orig_mod.", "._fsdp_wrapped_module.", "._checkpoint_wrapped_module."};
    for (int32_t i = 0; i < files->n_tensors; i++)
        for (size_t w = 0; w < sizeof wrappers / sizeof *wrappers; w++)
            for (char *at = NULL; (at = strstr(files->tensors[i].name, wrappers[w])) != NULL;)
                memmove(at, at + strlen(wrappers[w]) - 1, strlen(at) - strlen(wrappers[w]) + 2);
    return weft_weights_sort(files, directory, err);
}

static weft_status open_loading(loading *self, const weft_declared *declared, const weft_held *held, int32_t adapter,
                                const char *directory, weft_error *err) {
    const weft_stack stack = weft_stack_of(declared);
    const int32_t n = declared->n_parameters;
    char path[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    *self = (loading){.declared = declared, .adapter = adapter, .is_home = adapter == held->home};
    status = weft_stack_source(self->directory, &stack, held, adapter, directory, err);
    if (status == WEFT_OK) status = weft_path_join(path, self->directory, WEFT_ADAPTER_WEIGHTS, err);
    self->tensors = weft_alloc(n, sizeof(const weft_tensor *));
    self->moved = weft_alloc(n, sizeof(const weft_adapter_entry *));
    self->indices = weft_alloc(n, sizeof *self->indices);
    if (status == WEFT_OK) status = weft_safetensors_open(&self->files, path, err);
    if (status == WEFT_OK) status = unwrap_names(self->files, self->directory, err);
    if (status == WEFT_OK) status = weft_adapter_list_make(&self->list, declared, adapter, true, err);
    for (int32_t i = 0; i < self->list.n && status == WEFT_OK; i++)
        status = place_entry(self, &self->list.entries[i], err);
    for (int32_t i = 0; status == WEFT_OK && i < self->files->n_tensors; i++)
        status = place_base(self, &self->files->tensors[i], err);
    for (int32_t p = 0; status == WEFT_OK && p < n; p++) status = check_tied(self, p, err);
    return status == WEFT_OK && self->is_home ? check_all_saved(declared, self, self->directory, err) : status;
}

static void close_loading(loading *self) {
    free(self->list.entries);
    weft_safetensors_close(self->files);
    free(self->indices);
    free((void *)self->moved);
    free((void *)self->tensors);
}

/* ---- reading ---- */

static weft_status fill_moved(void *context, int32_t parameter, int64_t first, int64_t n, int32_t dtype, void *out,
                              weft_error *err) {
    const loading *self = context;
    const weft_adapter_entry *entry = self->moved[parameter];
    const weft_tensor *tensor = weft_safetensors_find(self->files, entry->tensor.name);
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
    if (tensor != NULL && tensor->numel == self->tensors[p]->numel && weft_is_convertible(tensor->dtype))
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

static weft_status take_values(const loading *self, float **out, int32_t p, weft_error *err) {
    const int64_t n = self->declared->parameters[p].numel;
    const weft_tensor *tensor = self->tensors[p];
    if (tensor == NULL && self->moved[p] == NULL) return WEFT_OK;
    *out = malloc((size_t)weft_f32_bytes(n) + 1); /* sized by the file */
    if (*out == NULL) return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for the adapter", self->directory);
    if (tensor == NULL) return fill_moved((void *)(uintptr_t)self, p, 0, n, WEFT_F32, *out, err);
    return weft_weights_read_numbers(self->files, *out, WEFT_F32, tensor, 0, n, err);
}

/* Checks the files of each adapter and loads them to the region, or to out; both may be NULL. */
static weft_status load_all(const weft_declared *declared, const char *directory, uint32_t flags,
                            const weft_region *region, float **out, weft_error *err) {
    const weft_stack stack = weft_stack_of(declared);
    weft_held held = weft_stack_all(&stack);
    weft_status status = WEFT_OK;
    if ((flags & WEFT_ADAPTER_SOME) != 0) status = weft_stack_held(&held, &stack, directory, err);
    for (int32_t i = 0; i < declared->n_adapters && status == WEFT_OK; i++) {
        loading self;
        if (!held.has[i]) continue;
        status = open_loading(&self, declared, &held, i, directory, err);
        if (status == WEFT_OK && (flags & WEFT_ADAPTER_SAVED) != 0) status = check_kept(&self, err);
        if (status == WEFT_OK && region != NULL) status = weft_weights_read(region, self.files, self.tensors, err);
        if (status == WEFT_OK && region != NULL)
            status = weft_region_fill(region, self.indices, self.n_moved, fill_moved, &self, err);
        for (int32_t p = 0; out != NULL && p < declared->n_parameters && status == WEFT_OK; p++)
            status = take_values(&self, &out[p], p, err);
        close_loading(&self);
    }
    return status;
}

weft_status weft_adapter_check(const weft_declared *declared, const char *directory, uint32_t flags, weft_error *err) {
    return load_all(declared, directory, flags, NULL, NULL, err);
}

weft_status weft_adapter_load(const weft_region *region, const char *directory, uint32_t flags, weft_error *err) {
    return load_all(region->declared, directory, flags & WEFT_ADAPTER_SOME, region, NULL, err);
}

weft_status weft_adapter_values(float **out, const weft_declared *declared, const char *directory, weft_error *err) {
    return load_all(declared, directory, 0, NULL, out, err);
}
