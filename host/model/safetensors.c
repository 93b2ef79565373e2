/* safetensors.c: reading. One file is mapped and proved before anything of it is handed out; a directory is its files
 * and an index that must agree with them. Writing is safetensors_write.c's. */
#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/text.h"

enum { HEADER_LIMIT = 100 << 20, INDEX_LIMIT = 100 << 20 };

/* The types of the format that are known here; others (BOOL, F8_E4M3, ...) are refused by name. */
static const struct {
    const char *name;
    int32_t dtype;
} dtypes[] = {{"F32", WEFT_F32}, {"BF16", WEFT_BF16}, {"F16", WEFT_F16}, {"F64", WEFT_F64},
              {"I32", WEFT_I32}, {"I64", WEFT_I64},   {"U8", WEFT_U8}};
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

static weft_status no_memory(const char *path, weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its list of tensors", path);
}

/* ---- one tensor of a header ---- */

static weft_status read_dtype(weft_tensor *tensor, const json_t *entry, const char *path, weft_error *err) {
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    tensor->dtype = dtype_of(name);
    if (tensor->dtype != 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA,
                          "%s: tensor '%s' has the dtype %s; known are F32, BF16, F16, F64, I32, I64 and U8", path,
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

/* data: `there` bytes behind the header. */
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

static int by_data(const void *a, const void *b) {
    const weft_tensor *x = *(const weft_tensor *const *)a, *y = *(const weft_tensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

/* The tensors, in the order of their data, cover `there` bytes from `data` on, each byte once. */
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
    if (order == NULL) return no_memory(path, err);
    for (int32_t i = 0; i < n; i++) order[i] = &tensors[i];
    qsort(order, (size_t)n, sizeof *order, by_data);
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

/* Room for `more` tensors behind those of self. */
static weft_status reserve(weft_safetensors *self, size_t more, const char *path, weft_error *err) {
    const size_t n = (size_t)self->n_tensors + more;
    weft_tensor *tensors = n > INT32_MAX ? NULL : realloc(self->tensors, (n + 1) * sizeof *tensors);
    if (tensors == NULL) return no_memory(path, err);
    self->tensors = tensors;
    return WEFT_OK;
}

/* Appends the tensors of a parsed header. data: `there` bytes behind it. */
static weft_status read_header(weft_safetensors *self, json_t *header, const unsigned char *data, int64_t there,
                               weft_error *err) {
    const char *path = self->files[self->n_files - 1].path, *name = NULL;
    const int32_t before = self->n_tensors;
    json_t *entry = NULL;
    weft_status status = reserve(self, json_object_size(header), path, err);
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
        if (tensor->name == NULL) return no_memory(path, err);
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

/* ---- one file ---- */

/* Opens and maps. What it has taken is weft_safetensors_close's to give back, in failure too. */
static weft_status map_file(weft_tensor_file *file, weft_error *err) {
    weft_status status = WEFT_OK;
    struct stat about;
    file->descriptor = open(file->path, O_RDONLY | O_CLOEXEC);
    if (file->descriptor < 0)
        return weft_error_set(err, errno == ENOENT ? WEFT_E_USER : WEFT_E_SYSTEM, "%s: cannot be opened: %s",
                              file->path, strerror(errno));
    (void)posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL); /* twice the read-ahead */
    if (fstat(file->descriptor, &about) != 0 || !S_ISREG(about.st_mode)) {
        status = weft_error_set(err, WEFT_E_USER, "%s: is not a file", file->path);
    } else if (about.st_size < 8) {
        status = weft_error_set(err, WEFT_E_DATA, "%s: has %lld bytes; a safetensors file has 8 and a header at least",
                                file->path, (long long)about.st_size);
    } else {
        void *map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file->descriptor, 0);
        if (map == MAP_FAILED) {
            status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be mapped: %s", file->path, strerror(errno));
        } else {
            file->map = map;
            file->bytes = (size_t)about.st_size;
        }
    }
    return status;
}

/* The eight bytes in front, checked against the file's size. */
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

/* Maps path and appends its tensors. On failure what was appended is left for weft_safetensors_close. */
static weft_status add_file(weft_safetensors *self, const char *path, weft_error *err) {
    weft_tensor_file *file = &self->files[self->n_files];
    weft_status status = WEFT_OK;
    size_t n = 0;
    json_error_t at;
    json_t *header = NULL;
    memset(file, 0, sizeof *file);
    file->descriptor = -1;
    file->path = strdup(path);
    if (file->path == NULL) return no_memory(path, err);
    self->n_files++;
    status = map_file(file, err);
    if (status == WEFT_OK) status = header_length(&n, file, err);
    if (status != WEFT_OK) return status;
    header = json_loadb((const char *)file->map + 8, n, JSON_REJECT_DUPLICATES, &at);
    if (header == NULL)
        return weft_error_set(err, WEFT_E_DATA, "%s: its header is not JSON: %s (at its byte %d)", path, at.text,
                              at.position);
    if (!json_is_object(header))
        status = weft_error_set(err, WEFT_E_DATA, "%s: its header is not a JSON object of tensors", path);
    else status = read_header(self, header, file->map + 8 + n, (int64_t)(file->bytes - 8 - n), err);
    json_decref(header);
    return status;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const weft_tensor *)a)->name, ((const weft_tensor *)b)->name);
}

static weft_status make(weft_safetensors **out, size_t n_files, const char *path, weft_error *err) {
    weft_safetensors *self = calloc(1, sizeof *self);
    if (self == NULL) return no_memory(path, err);
    self->files = calloc(n_files + 1, sizeof *self->files);
    if (self->files == NULL) {
        free(self);
        return no_memory(path, err);
    }
    *out = self;
    return WEFT_OK;
}

static weft_status give(weft_safetensors **out, weft_safetensors *self, weft_status status) {
    if (status == WEFT_OK) {
        if (self->n_tensors > 0) qsort(self->tensors, (size_t)self->n_tensors, sizeof *self->tensors, by_name);
        *out = self;
    } else {
        weft_safetensors_close(self);
    }
    return status;
}

weft_status weft_safetensors_open(weft_safetensors **out, const char *path, weft_error *err) {
    weft_safetensors *self = NULL;
    weft_status status = make(&self, 1, path, err);
    if (status == WEFT_OK) status = add_file(self, path, err);
    return give(out, self, status);
}

void weft_safetensors_close(weft_safetensors *self) {
    if (self == NULL) return;
    for (int32_t i = 0; i < self->n_tensors; i++) free(self->tensors[i].name);
    for (int32_t i = 0; i < self->n_files; i++) {
        if (self->files[i].map != NULL) (void)munmap(self->files[i].map, self->files[i].bytes);
        if (self->files[i].descriptor >= 0) (void)close(self->files[i].descriptor);
        free(self->files[i].path);
    }
    free(self->tensors);
    free(self->files);
    free(self);
}

const weft_tensor *weft_safetensors_find(const weft_safetensors *self, const char *name) {
    int32_t low = 0, high = self->n_tensors;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2, order = strcmp(self->tensors[middle].name, name);
        if (order == 0) return &self->tensors[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* Where the file ends now: a piece that begins behind it says nothing of that. */
static int64_t file_end(const weft_tensor_file *file) {
    struct stat info;
    return fstat(file->descriptor, &info) == 0 ? (int64_t)info.st_size : 0;
}

weft_status weft_safetensors_read(const weft_safetensors *self, void *out, const weft_tensor *tensor, int64_t offset,
                                  int64_t bytes, weft_error *err) {
    const weft_tensor_file *file = &self->files[tensor->file];
    const int64_t begin = tensor->data - file->map + offset;
    int64_t done = 0;
    while (done < bytes) {
        const ssize_t n = pread(file->descriptor, (char *)out + done, (size_t)(bytes - done), (off_t)(begin + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return weft_error_set(err, WEFT_E_SYSTEM, "%s: tensor '%s' cannot be read at byte %lld: %s", file->path,
                                  tensor->name, (long long)(begin + done), strerror(errno));
        if (n == 0)
            return weft_error_set(err, WEFT_E_DATA,
                                  "%s: ends at byte %lld, within tensor '%s', though it was longer when it was opened; "
                                  "another program has changed it: start again when it is whole",
                                  file->path, (long long)file_end(file), tensor->name);
        done += n;
    }
    return WEFT_OK;
}

/* ---- a directory ---- */

/* A plain name of a file beside the index, nothing that leads elsewhere. */
static bool shard_name_good(const char *name) {
    const size_t n = name == NULL ? 0 : strlen(name), suffix = strlen(".safetensors");
    return n > suffix && strcmp(name + n - suffix, ".safetensors") == 0 && strchr(name, '/') == NULL;
}

/* Opens each file that the map names, once. */
static weft_status add_shards(weft_safetensors *self, const char *directory, const char *index_path, json_t *map,
                              weft_error *err) {
    const char *tensor = NULL;
    json_t *value = NULL, *opened = json_object();
    weft_status status = opened == NULL ? no_memory(index_path, err) : WEFT_OK;
    json_object_foreach(map, tensor, value) {
        const char *name = json_string_value(value);
        char *path = NULL;
        if (status != WEFT_OK) break;
        if (!shard_name_good(name)) {
            status =
                weft_error_set(err, WEFT_E_DATA,
                               "%s: puts tensor '%s' into '%s'; allowed is the name of a .safetensors file beside it",
                               index_path, tensor, name == NULL ? "(no text)" : name);
            break;
        }
        if (json_object_get(opened, name) != NULL) continue;
        if (json_object_set_new(opened, name, json_true()) != 0 || asprintf(&path, "%s/%s", directory, name) < 0) {
            status = no_memory(index_path, err);
            break;
        }
        if (access(path, F_OK) != 0)
            status = weft_error_set(err, WEFT_E_USER,
                                    "%s: is missing, but %s puts tensor '%s' into it; copy or download it again", path,
                                    index_path, tensor);
        else status = add_file(self, path, err);
        free(path);
    }
    json_decref(opened);
    return status;
}

/* Each tensor lies in the file that the index says, and nothing else is there. */
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
    json_error_t at;
    json_t *index = NULL, *map = NULL;
    weft_status status = weft_text_read(&text, &bytes, index_path, INDEX_LIMIT, err);
    if (status != WEFT_OK) return status;
    index = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    map = json_object_get(index, "weight_map");
    if (index == NULL)
        status = weft_error_set(err, WEFT_E_DATA, "%s:%d: is not JSON: %s", index_path, at.line, at.text);
    else if (json_object_size(map) == 0)
        status =
            weft_error_set(err, WEFT_E_DATA, "%s: has no weight_map that names the file of each tensor", index_path);
    if (status == WEFT_OK) status = make(&self, json_object_size(map), index_path, err);
    if (status == WEFT_OK) status = add_shards(self, directory, index_path, map, err);
    status = give(&self, self, status);
    if (status == WEFT_OK) {
        status = check_index(self, index_path, map, err);
        if (status != WEFT_OK) weft_safetensors_close(self);
    }
    if (status == WEFT_OK) *out = self;
    json_decref(index);
    free(text);
    return status;
}

weft_status weft_safetensors_open_directory(weft_safetensors **out, const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    char *single = NULL, *index = NULL;
    if (asprintf(&single, "%s/model.safetensors", directory) < 0) single = NULL;
    if (asprintf(&index, "%s/model.safetensors.index.json", directory) < 0) index = NULL;
    if (single == NULL || index == NULL) status = no_memory(directory, err);
    else if (access(single, F_OK) == 0) status = weft_safetensors_open(out, single, err);
    else if (access(index, F_OK) == 0) status = open_index(out, directory, index, err);
    else
        status =
            weft_error_set(err, WEFT_E_USER,
                           "%s: holds neither model.safetensors nor model.safetensors.index.json; weights in other "
                           "formats are made into such files by save_pretrained of transformers",
                           directory);
    free(index);
    free(single);
    return status;
}
