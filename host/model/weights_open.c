/* host/model/weights_open.c: opens a model's files whose tensor names were written by another class or wrapper:
 * AutoModel without the prefix of the head's model, or torch.compile, DDP or a vision model with a prefix. */
#include "base/text.h"
#include "model/config_json.h"
#include "model/weights.h"

#include <jansson.h>
#include <stdlib.h>

/* Maps names of the files to those of the model: removes `skip` bytes, and adds `base` if the result then matches. */
typedef struct naming {
    size_t skip;
    const char *base; /* "model."; "": unchanged */
} naming;

/* Returns "model." for layers in "model.layers": the prefix that AutoModel omits. */
static void base_of(char out[256], const weft_declared *declared) {
    const char *path = declared->info.layer_path, *dot = path == NULL ? NULL : strrchr(path, '.');
    (void)snprintf(out, 256, "%.*s", dot == NULL ? 0 : (int)(dot + 1 - path), path == NULL ? "" : path);
}

/* Returns the number of bytes of the wrapper prefixes that all names share. */
static size_t common_wrappers(const weft_safetensors *files) {
    static const char *const wrappers[] = {"_orig_mod.", "module.", "language_model."};
    size_t skip = 0;
    for (size_t w = 0; files->n_tensors > 0 && w < sizeof wrappers / sizeof *wrappers;) {
        const size_t n = strlen(wrappers[w]);
        int32_t i = 0;
        while (i < files->n_tensors && strncmp(files->tensors[i].name + skip, wrappers[w], n) == 0) i++;
        if (i == files->n_tensors) {
            skip += n;
            w = 0;
        } else {
            w++;
        }
    }
    return skip;
}

static bool is_declared(const weft_declared *declared, const char *base, const char *name) {
    char whole[1024];
    if (snprintf(whole, sizeof whole, "%s%s", base, name) >= (int)sizeof whole) return false;
    return weft_declared_find(declared, whole) >= 0;
}

/* Returns the prefix to add under this naming; "" if the name matches without it. */
static const char *base_for(const weft_declared *declared, const naming *by, const char *name) {
    return is_declared(declared, "", name + by->skip) ? "" : by->base;
}

static int32_t count_fits(const weft_safetensors *files, const weft_declared *declared, const naming *by) {
    int32_t n = 0;
    for (int32_t i = 0; i < files->n_tensors; i++) {
        const char *name = files->tensors[i].name;
        n += is_declared(declared, base_for(declared, by, name), name + by->skip);
    }
    return n;
}

static int compare_by_name(const void *a, const void *b) {
    return strcmp(((const weft_tensor *)a)->name, ((const weft_tensor *)b)->name);
}

static weft_status rename_all(weft_safetensors *files, const weft_declared *declared, const naming *by,
                              const char *directory, weft_error *err) {
    for (int32_t i = 0; i < files->n_tensors; i++) {
        const char *name = files->tensors[i].name + by->skip;
        const char *base = is_declared(declared, by->base, name) ? base_for(declared, by, name - by->skip) : "";
        char *renamed = NULL;
        if (asprintf(&renamed, "%s%s", base, name) < 0)
            return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for the names of its tensors", directory);
        free(files->tensors[i].name);
        files->tensors[i].name = renamed;
    }
    qsort(files->tensors, (size_t)files->n_tensors, sizeof *files->tensors, compare_by_name);
    for (int32_t i = 1; i < files->n_tensors; i++)
        if (strcmp(files->tensors[i - 1].name, files->tensors[i].name) == 0)
            return weft_error_set(err, WEFT_E_DATA, "%s: two of its tensors are '%s' of the model", directory,
                                  files->tensors[i].name);
    return WEFT_OK;
}

weft_status weft_weights_open(weft_safetensors **out, const weft_declared *declared, const char *directory,
                              weft_error *err) {
    char base[256];
    weft_safetensors *files = NULL;
    weft_status status = weft_safetensors_open_directory(&files, directory, err);
    const naming none = {0, ""};
    naming best = none;
    int32_t most = 0;
    if (status != WEFT_OK) return status;
    base_of(base, declared);
    most = count_fits(files, declared, &none);
    for (int32_t i = 1; i < 4; i++) {
        const naming by = {i & 1 ? common_wrappers(files) : 0, i & 2 ? base : ""};
        const int32_t fits = count_fits(files, declared, &by);
        if (fits <= most) continue;
        most = fits;
        best = by;
    }
    if (best.skip > 0 || best.base[0] != '\0') status = rename_all(files, declared, &best, directory, err);
    if (status == WEFT_OK) *out = files;
    else weft_safetensors_close(files);
    return status;
}

char *weft_config_json_with_head(const weft_declared *declared, const char *text, size_t bytes, size_t *out_bytes) {
    char base[256], *value = NULL, *out = NULL;
    json_t *root = NULL, *named = NULL;
    const json_t *classes = NULL;
    const char *class_name = NULL;
    int32_t inner = -1;
    (void)weft_json_parse(&root, text, bytes, 0, "", NULL);
    classes = json_object_get(root, "architectures");
    class_name = json_string_value(json_array_get(classes, 0));
    base_of(base, declared);
    if (base[0] != '\0') base[strlen(base) - 1] = '\0';
    if (base[0] != '\0') inner = weft_declared_module(declared, base);
    if (json_array_size(classes) == 1 && class_name != NULL && inner > 0 &&
        strcmp(class_name, declared->modules[inner]->class_name) == 0)
        named = json_pack("[s]", declared->modules[0]->class_name);
    if (named != NULL) value = json_dumps(named, 0);
    if (value != NULL) {
        const weft_json_change change = {"architectures", value};
        out = weft_config_json_change(text, bytes, &change, 1, out_bytes);
    } else if (named == NULL && (out = malloc(bytes + 1)) != NULL) {
        memcpy(out, text, bytes);
        out[bytes] = '\0';
        *out_bytes = bytes;
    }
    json_decref(named);
    json_decref(root);
    free(value);
    return out;
}
