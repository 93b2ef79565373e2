/* host/model/weights_read.c: reads tensors of files into a region. Chunks start in file order rather than declaration
 * order, following the read-ahead thread, so that a disk sees one sequential read. Reads copy the data out of the page
 * cache. A mapping would fault in its pages one by one, and they would count as this process's memory in addition to
 * the region. */
#include "base/safetensors.h"
#include "base/alloc.h"
#include "base/text.h"
#include "base/units.h"
#include "model/config_json.h"
#include "model/convert.h"
#include "model/weights.h"

#include <jansson.h>
#include <stdlib.h>

/* ---- tensor names of another class or wrapper: AutoModel omits the prefix of the head's model; torch.compile, DDP,
 * FSDP, PEFT and vision models add one. Each tensor is renamed separately: a checkpoint can be wrapped in parts. */

enum { NAME = 1024 };

/* Returns "model." for layers in "model.layers": the prefix that AutoModel omits. */
static void base_of(char out[256], const weft_declared *declared) {
    const char *path = declared->info.layer_path, *dot = path == NULL ? NULL : strrchr(path, '.');
    (void)snprintf(out, 256, "%.*s", dot == NULL ? 0 : (int)(dot + 1 - path), path == NULL ? "" : path);
}

/* True for the name that a wrapper gives to the module in it. */
static bool is_wrapper(const char *part, size_t n) {
    static const char *const wrappers[] = {
        "_orig_mod",                  /* torch.compile */
        "module",                     /* DDP, DeepSpeed */
        "_fsdp_wrapped_module",       /* FSDP, in the middle of names too */
        "_checkpoint_wrapped_module", /* activation checkpointing, there too */
        "language_model",             /* vision models */
        "base_model",                 /* PEFT, as base_model.model. */
    };
    for (size_t w = 0; w < sizeof wrappers / sizeof *wrappers; w++)
        if (strlen(wrappers[w]) == n && memcmp(wrappers[w], part, n) == 0) return true;
    return false;
}

static void unwrap(char out[NAME], const char *name) {
    size_t used = 0;
    out[0] = '\0';
    while (*name != '\0') {
        const size_t n = strcspn(name, "."), whole = n + (name[n] == '.');
        if (used + whole >= NAME) {
            out[0] = '\0';
            return;
        }
        if (name[n] == '\0' || !is_wrapper(name, n)) {
            memcpy(out + used, name, whole);
            used += whole;
        }
        name += whole;
    }
    out[used] = '\0';
}

/* Writes the declared name that is `name` as it is, with `base` before it, or without a leading "model.", which PEFT
 * and trainers add. */
static bool find_declared(char out[NAME], const weft_declared *declared, const char *base, const char *name) {
    const char *outer = "model.";
    for (;;) {
        if (weft_declared_find(declared, name) >= 0) return snprintf(out, NAME, "%s", name) < NAME;
        if (snprintf(out, NAME, "%s%s", base, name) < NAME && weft_declared_find(declared, out) >= 0) return true;
        if (strncmp(name, outer, strlen(outer)) != 0) return false;
        name += strlen(outer);
    }
}

/* Writes the model's name of a tensor; false: it has none. */
static bool own_name(char out[NAME], const weft_declared *declared, const char *base, const char *name) {
    char bare[NAME];
    if (weft_declared_find(declared, name) >= 0) return snprintf(out, NAME, "%s", name) < NAME;
    unwrap(bare, name);
    return find_declared(out, declared, base, bare);
}

size_t weft_weights_unknown_prefix(const weft_declared *declared, const char *name) {
    char base[256], found[NAME];
    base_of(base, declared);
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
        if (own_name(found, declared, base, dot + 1)) return (size_t)(dot + 1 - name);
    return 0;
}

weft_status weft_weights_sort(weft_safetensors *files, const char *directory, weft_error *err) {
    weft_safetensors_sort(files);
    for (int32_t i = 1; i < files->n_tensors; i++)
        if (strcmp(files->tensors[i - 1].name, files->tensors[i].name) == 0)
            return weft_error_set(err, WEFT_E_DATA,
                                  "%s: two of its tensors are '%s' of the model, once with and once without a prefix "
                                  "such as module. or _orig_mod. Fix: remove one of the two",
                                  directory, files->tensors[i].name);
    return WEFT_OK;
}

static weft_status rename_all(weft_safetensors *files, const weft_declared *declared, const char *directory,
                              weft_error *err) {
    char base[256], found[NAME];
    base_of(base, declared);
    for (int32_t i = 0; i < files->n_tensors; i++) {
        char **name = &files->tensors[i].name;
        if (!own_name(found, declared, base, *name) || strcmp(found, *name) == 0) continue;
        free(*name);
        *name = weft_strdup(found);
    }
    return weft_weights_sort(files, directory, err);
}

weft_status weft_weights_open(weft_safetensors **out, const weft_declared *declared, const char *directory,
                              weft_error *err) {
    weft_safetensors *files = NULL;
    weft_status status = weft_safetensors_open_directory(&files, directory, err);
    if (status != WEFT_OK) return status;
    status = rename_all(files, declared, directory, err);
    if (status == WEFT_OK) *out = files;
    else weft_safetensors_close(files);
    return status;
}

weft_status weft_config_json_set_head(const weft_declared *declared, char **text, size_t *bytes, weft_error *err) {
    char base[256], *value = NULL;
    json_t *root = NULL, *named = NULL;
    const json_t *classes = NULL;
    const char *class_name = NULL;
    int32_t inner = -1;
    weft_status status = WEFT_OK;
    (void)weft_json_parse(&root, *text, *bytes, 0, "", NULL);
    classes = json_object_get(root, "architectures");
    class_name = json_string_value(json_array_get(classes, 0));
    base_of(base, declared);
    if (base[0] != '\0') base[strlen(base) - 1] = '\0';
    if (base[0] != '\0') inner = weft_declared_module(declared, base);
    if (json_array_size(classes) == 1 && class_name != NULL && inner > 0 &&
        strcmp(class_name, declared->modules[inner]->class_name) == 0)
        named = json_pack("[s]", declared->modules[0]->class_name);
    if (named != NULL) value = json_dumps(named, 0);
    if (value != NULL)
        status = weft_config_json_change(text, bytes, &(weft_json_change){"architectures", value}, 1, err);
    json_decref(named);
    json_decref(root);
    free(value);
    return status;
}

/* ---- reading ---- */

enum { BLOCK = 1 << 14 }; /* elements that are converted at once: they fit in a core's cache */

weft_status weft_weights_read_numbers(const weft_safetensors *files, void *out, int32_t dtype,
                                      const weft_tensor *tensor, int64_t first, int64_t n, weft_error *err) {
    const int64_t width = weft_dtype_bytes(tensor->dtype);
    float block[BLOCK];
    weft_status status = WEFT_OK;
    for (int64_t at = 0; at < n && status == WEFT_OK; at += BLOCK) {
        const int64_t some = weft_smaller(BLOCK, n - at);
        status = weft_safetensors_read(files, block, tensor, width * (first + at), width * some, err);
        if (status == WEFT_OK)
            (void)weft_convert((char *)out + weft_dtype_span(dtype, at), dtype, block, tensor->dtype, some);
    }
    return status;
}

typedef struct reading {
    const weft_safetensors *files;
    const weft_tensor *const *tensors; /* indexed by parameter */
} reading;

/* Waits until the bytes up to `end` of a tensor have been read ahead. */
static void await_bytes(const reading *self, const weft_tensor *tensor, int64_t end) {
    const int64_t begin = tensor->data - self->files->files[tensor->file].map;
    weft_ahead_wait(self->files->ahead, tensor->file, begin + end);
}

static weft_region_source fill_from_tensor;

/* Fills a chunk that extends beyond the file's last row: with the mean of its rows, summed in fp64. */
static weft_status fill_beyond(reading *self, int32_t parameter, int64_t first, int64_t n, int32_t dtype, char *out,
                               weft_error *err) {
    const weft_tensor *tensor = self->tensors[parameter];
    const int64_t there = weft_larger(0, tensor->numel - first);
    const int64_t width = tensor->rank == 1 ? 1 : tensor->dims[1];
    double *mean = calloc((size_t)width, sizeof *mean);
    float numbers[BLOCK];
    weft_status status = mean == NULL ? weft_error_set(err, WEFT_E_MEMORY, "no memory for the mean of %s", tensor->name)
                                      : WEFT_OK;
    if (status == WEFT_OK && there > 0) status = fill_from_tensor(self, parameter, first, there, dtype, out, err);
    await_bytes(self, tensor, tensor->bytes);
    for (int64_t at = 0, column = 0; at < tensor->numel && status == WEFT_OK; at += BLOCK) {
        const int64_t some = weft_smaller(BLOCK, tensor->numel - at);
        status = weft_weights_read_numbers(self->files, numbers, WEFT_F32, tensor, at, some, err);
        for (int64_t i = 0; i < some && status == WEFT_OK; i++) {
            mean[column] += (double)numbers[i];
            column = column + 1 == width ? 0 : column + 1;
        }
    }
    for (int64_t i = there; i < n && status == WEFT_OK; i++) {
        const float value = (float)(mean[(first + i) % width] / (double)(tensor->numel / width));
        (void)weft_convert(out + weft_dtype_span(dtype, i), dtype, &value, WEFT_F32, 1);
    }
    free(mean);
    return status;
}

/* A packed parameter is stored in the file in its packed type, or as numbers. */
static weft_status fill_from_tensor(void *context, int32_t parameter, int64_t first, int64_t n, int32_t dtype,
                                    void *out, weft_error *err) {
    reading *self = context;
    const weft_tensor *tensor = self->tensors[parameter];
    const int32_t stored = tensor->dtype == WEFT_U8 ? dtype : tensor->dtype;
    if (tensor->dtype != WEFT_U8 && first + n > tensor->numel)
        return fill_beyond(self, parameter, first, n, dtype, out, err);
    await_bytes(self, tensor, weft_dtype_span(stored, first + n));
    if (stored != dtype) return weft_weights_read_numbers(self->files, out, dtype, tensor, first, n, err);
    return weft_safetensors_read(self->files, out, tensor, weft_dtype_span(dtype, first), weft_dtype_span(dtype, n),
                                 err);
}

static int compare_by_place(const void *a, const void *b, void *context) {
    const weft_tensor *const *tensors = context;
    const weft_tensor *x = tensors[*(const int32_t *)a], *y = tensors[*(const int32_t *)b];
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->data > y->data) - (x->data < y->data);
}

weft_status weft_weights_read(const weft_region *region, weft_safetensors *files, const weft_tensor *const *tensors,
                              weft_error *err) {
    const int32_t all = region->declared->n_parameters;
    reading self = {files, tensors};
    weft_status status = WEFT_OK;
    int32_t n = 0, *order = weft_alloc(all, sizeof *order);
    bool *is_packed_now = weft_alloc(all, sizeof *is_packed_now), keeps_all = true;
    for (int32_t p = 0; p < all; p++) {
        if (tensors[p] == NULL) continue;
        is_packed_now[p] = weft_dtype_is_packed(weft_region_dtype(region, p)) && tensors[p]->dtype != WEFT_U8;
        order[n++] = p;
    }
    for (int32_t g = 0; region->hold != NULL && g < region->hold->n_groups; g++) keeps_all &= !region->apart[g];
    if (keeps_all) weft_safetensors_read_ahead(files); /* not for a rank that reads only parts of the files */
    qsort_r(order, (size_t)n, sizeof *order, compare_by_place, (void *)(uintptr_t)tensors);
    status = weft_packing_fill(region, order, n, is_packed_now, fill_from_tensor, &self, err);
    free(is_packed_now);
    free(order);
    return status;
}
