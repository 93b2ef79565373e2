/* host/base/safetensors_header.c: see safetensors_parts.h. A header is validated before any data of its file is
 * returned. Each tensor has a type, a shape and its bytes, and together they cover each byte of the data exactly once.
 */
#include "base/safetensors_parts.h"

#include "base/join.h"
#include "base/text.h"

#include <jansson.h>
#include <stdlib.h>

enum { HEADER_LIMIT = 100 << 20 };

/* The supported types of the format; others (BOOL, F8_E4M3, ...) are rejected by name. */
static const struct {
    const char *name;
    int32_t dtype;
} dtypes[] = {{"F32", WEFT_F32}, {"BF16", WEFT_BF16}, {"F16", WEFT_F16}, {"F64", WEFT_F64},
              {"I32", WEFT_I32}, {"I64", WEFT_I64},   {"I8", WEFT_I8},   {"U8", WEFT_U8}};
enum { N_DTYPES = (int)(sizeof dtypes / sizeof dtypes[0]) };

const char *weft_tensor_dtype_name(int32_t dtype) {
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    return "?";
}

static int32_t dtype_of(const char *name) {
    for (int i = 0; name != NULL && i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) return dtypes[i].dtype;
    return 0;
}

/* ---- one tensor of a header ---- */

static weft_status read_dtype(weft_tensor *tensor, const json_t *entry, const char *path, weft_error *err) {
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    tensor->dtype = dtype_of(name);
    if (tensor->dtype != 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA,
                          "%s: tensor '%s' has the dtype %s; known are F32, BF16, F16, F64, I32, I64, I8 and U8", path,
                          tensor->name, name == NULL ? "(none)" : name);
}

static weft_status read_shape(weft_tensor *tensor, const json_t *entry, const char *path, weft_error *err) {
    const json_t *shape = json_object_get(entry, "shape");
    const int64_t width = weft_dtype_bytes(tensor->dtype);
    int64_t numel = 1;
    if (!json_is_array(shape) || json_array_size(shape) > WEFT_TENSOR_RANK)
        return weft_error_set(err, WEFT_E_DATA, "%s: tensor '%s' has no shape, or one of more than %d dimensions", path,
                              tensor->name, WEFT_TENSOR_RANK);
    tensor->rank = (int32_t)json_array_size(shape);
    for (int32_t i = 0; i < tensor->rank; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        const int64_t n = json_integer_value(dim);
        if (!json_is_integer(dim) || n < 0 || (n > 0 && numel > INT64_MAX / width / n))
            return weft_error_set(err, WEFT_E_DATA,
                                  "%s: tensor '%s' has a shape whose dimension %d is no size that memory can have",
                                  path, tensor->name, i);
        tensor->dims[i] = n;
        numel *= n;
    }
    tensor->numel = numel;
    tensor->bytes = numel * width;
    return WEFT_OK;
}

/* Reads the offsets. data: `there` bytes after the header. */
static weft_status read_offsets(weft_tensor *tensor, const json_t *entry, const unsigned char *data, int64_t there,
                                const char *path, weft_error *err) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    const int64_t begin = json_integer_value(first), end = json_integer_value(second);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second) || begin < 0 ||
        end < begin)
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: tensor '%s' has no data_offsets [begin, end] with 0 <= begin <= end", path,
                              tensor->name);
    if (end > there)
        return weft_error_set(
            err, WEFT_E_DATA,
            "%s: tensor '%s' ends at byte %lld of the data, but the file holds %lld; it is truncated: copy "
            "or download it again",
            path, tensor->name, (long long)end, (long long)there);
    if (end - begin != tensor->bytes)
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: tensor '%s' has %lld bytes, but its shape of %lld elements of %s needs %lld", path,
                              tensor->name, (long long)(end - begin), (long long)tensor->numel,
                              weft_tensor_dtype_name(tensor->dtype), (long long)tensor->bytes);
    tensor->data = data + begin;
    return WEFT_OK;
}

/* ---- one header ---- */

static int compare_by_data(const void *a, const void *b) {
    const weft_tensor *x = *(const weft_tensor *const *)a, *y = *(const weft_tensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

/* Checks that the tensors, in the order of their data, cover each of the `there` bytes from `data` on exactly once. */
static weft_status check_cover(const weft_tensor *const *order, int32_t n, const unsigned char *data, int64_t there,
                               const char *path, weft_error *err) {
    int64_t end = 0;
    for (int32_t i = 0; i < n; i++) {
        const int64_t begin = order[i]->data - data;
        if (begin < end)
            return weft_error_set(err, WEFT_E_DATA,
                                  "%s: tensors '%s' and '%s' overlap in bytes %lld to %lld of the data", path,
                                  order[i - 1]->name, order[i]->name, (long long)begin, (long long)end);
        if (begin > end)
            return weft_error_set(err, WEFT_E_DATA,
                                  "%s: bytes %lld to %lld of the data, before tensor '%s', belong to no tensor", path,
                                  (long long)end, (long long)begin, order[i]->name);
        end = begin + order[i]->bytes;
    }
    if (end < there)
        return weft_error_set(
            err, WEFT_E_DATA,
            "%s: the last %lld bytes, behind tensor '%s', belong to no tensor; the file is larger than its "
            "header says",
            path, (long long)(there - end), n == 0 ? "(none)" : order[n - 1]->name);
    return WEFT_OK;
}

static weft_status check_order(const weft_tensor *tensors, int32_t n, const unsigned char *data, int64_t there,
                               const char *path, weft_error *err) {
    weft_status status = WEFT_OK;
    const weft_tensor **order = malloc(((size_t)n + 1) * sizeof(const weft_tensor *));
    if (order == NULL) return weft_safetensors_no_memory(path, err);
    for (int32_t i = 0; i < n; i++) order[i] = &tensors[i];
    qsort(order, (size_t)n, sizeof *order, compare_by_data);
    status = check_cover(order, n, data, there, path, err);
    free(order);
    return status;
}

static weft_status check_metadata(json_t *metadata, const char *path, weft_error *err) {
    const char *key = NULL;
    json_t *value = NULL;
    bool good = json_is_object(metadata);
    json_object_foreach(metadata, key, value) good = good && json_is_string(value);
    if (good) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA, "%s: __metadata__ of its header is no object of texts", path);
}

/* Reserves capacity for `more` tensors. */
static weft_status reserve_tensors(weft_safetensors *self, size_t more, const char *path, weft_error *err) {
    const size_t n = (size_t)self->n_tensors + more;
    weft_tensor *tensors = n > INT32_MAX ? NULL : realloc(self->tensors, (n + 1) * sizeof *tensors);
    if (tensors == NULL) return weft_safetensors_no_memory(path, err);
    self->tensors = tensors;
    return WEFT_OK;
}

/* Appends the tensors of a parsed header. data: `there` bytes after it. */
static weft_status add_tensors(weft_safetensors *self, json_t *header, const unsigned char *data, int64_t there,
                               weft_error *err) {
    const char *path = self->files[self->n_files - 1].path, *name = NULL;
    const int32_t before = self->n_tensors;
    json_t *entry = NULL;
    weft_status status = reserve_tensors(self, json_object_size(header), path, err);
    json_object_foreach(header, name, entry) {
        weft_tensor *tensor = &self->tensors[self->n_tensors];
        if (status != WEFT_OK) break;
        if (strcmp(name, "__metadata__") == 0) {
            status = check_metadata(entry, path, err);
            continue;
        }
        memset(tensor, 0, sizeof *tensor);
        tensor->file = self->n_files - 1;
        tensor->name = strdup(name);
        if (tensor->name == NULL) return weft_safetensors_no_memory(path, err);
        self->n_tensors++;
        if (!json_is_object(entry))
            return weft_error_set(err, WEFT_E_DATA, "%s: tensor '%s' is not described by an object", path, name);
        status = read_dtype(tensor, entry, path, err);
        if (status == WEFT_OK) status = read_shape(tensor, entry, path, err);
        if (status == WEFT_OK) status = read_offsets(tensor, entry, data, there, path, err);
    }
    if (status != WEFT_OK) return status;
    return check_order(self->tensors + before, self->n_tensors - before, data, there, path, err);
}

/* Reads the eight length bytes and checks them against the file's size. */
static weft_status header_length(size_t *out, const weft_tensor_file *file, weft_error *err) {
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | file->map[i];
    if (n > HEADER_LIMIT)
        return weft_error_set(
            err, WEFT_E_DATA,
            "%s: says that its header has %llu bytes; more than %d is never so: this is no safetensors "
            "file",
            file->path, (unsigned long long)n, HEADER_LIMIT);
    if (n > file->bytes - 8)
        return weft_error_set(err, WEFT_E_DATA,
                              "%s: its header of %llu bytes does not fit into the file's %zu; it is truncated: copy or "
                              "download it again",
                              file->path, (unsigned long long)n, file->bytes);
    *out = (size_t)n;
    return WEFT_OK;
}

weft_status weft_safetensors_read_header(weft_safetensors *self, weft_error *err) {
    const weft_tensor_file *file = &self->files[self->n_files - 1];
    size_t n = 0;
    json_t *header = NULL;
    char name[WEFT_PATH_BYTES];
    weft_status status = header_length(&n, file, err);
    (void)snprintf(name, sizeof name, "%s: header", file->path);
    if (status == WEFT_OK) status = weft_json_parse(&header, (const char *)file->map + 8, n, 0, name, err);
    if (status != WEFT_OK) return status;
    status = add_tensors(self, header, file->map + 8 + n, (int64_t)(file->bytes - 8 - n), err);
    json_decref(header);
    return status;
}
