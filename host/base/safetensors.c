/* host/base/safetensors.c: see safetensors.h. */
#include "base/safetensors.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

void weft_tensor_print_dims(char text[WEFT_DIMS_BYTES], const int64_t *dims, int32_t rank) {
    (void)snprintf(text, WEFT_DIMS_BYTES, "(");
    for (int32_t i = 0; i < rank; i++)
        weft_words_append(text, WEFT_DIMS_BYTES, "%s%lld", i == 0 ? "" : ", ", (long long)dims[i]);
    weft_words_append(text, WEFT_DIMS_BYTES, ")");
}

weft_status weft_tensor_reject(const weft_safetensors *self, const weft_tensor *tensor, weft_error *err,
                               const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return weft_error_set(err, WEFT_E_DATA, "%s: tensor '%s' %s", self->files[tensor->file].path, tensor->name, text);
}

/* ---- one tensor of a header ---- */

static weft_status read_dtype(const weft_safetensors *self, weft_tensor *tensor, const json_t *entry, weft_error *err) {
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    for (int i = 0; name != NULL && i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) tensor->dtype = dtypes[i].dtype;
    if (tensor->dtype != 0) return WEFT_OK;
    return weft_tensor_reject(self, tensor, err, "has the dtype %s. Allowed: F32, BF16, F16, F64, I32, I64, I8 and U8",
                              name == NULL ? "(none)" : name);
}

static weft_status read_shape(const weft_safetensors *self, weft_tensor *tensor, const json_t *entry, weft_error *err) {
    const json_t *shape = json_object_get(entry, "shape");
    const int64_t width = weft_dtype_bytes(tensor->dtype);
    int64_t numel = 1;
    if (!json_is_array(shape) || json_array_size(shape) > WEFT_TENSOR_RANK)
        return weft_tensor_reject(self, tensor, err, "has no shape, or one of more than %d dimensions",
                                  WEFT_TENSOR_RANK);
    tensor->rank = (int32_t)json_array_size(shape);
    for (int32_t i = 0; i < tensor->rank; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        const int64_t n = json_integer_value(dim);
        if (!json_is_integer(dim) || n < 0 || (n > 0 && numel > INT64_MAX / width / n))
            return weft_tensor_reject(self, tensor, err, "has a shape with the invalid dimension %d", i);
        tensor->dims[i] = n;
        numel *= n;
    }
    tensor->numel = numel;
    tensor->bytes = numel * width;
    return WEFT_OK;
}

/* Reads the offsets. data: `there` bytes after the header. */
static weft_status read_offsets(const weft_safetensors *self, weft_tensor *tensor, const json_t *entry,
                                const unsigned char *data, int64_t there, weft_error *err) {
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    const int64_t begin = json_integer_value(first), end = json_integer_value(second);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second) || begin < 0 ||
        end < begin)
        return weft_tensor_reject(self, tensor, err, "has no data_offsets [begin, end] with 0 <= begin <= end");
    if (end > there)
        return weft_tensor_reject(self, tensor, err,
                                  "ends at byte %lld of the data, but the file has %lld. Fix: copy or download the "
                                  "truncated file again",
                                  (long long)end, (long long)there);
    if (end - begin != tensor->bytes)
        return weft_tensor_reject(self, tensor, err, "has %lld bytes, but its shape of %lld elements of %s needs %lld",
                                  (long long)(end - begin), (long long)tensor->numel,
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

/* Checks that the tensors cover each of the `there` bytes from `data` on exactly once. */
static weft_status check_cover(const weft_tensor *tensors, int32_t n, const unsigned char *data, int64_t there,
                               const char *path, weft_error *err) {
    weft_status status = WEFT_OK;
    int64_t begin = 0, end = 0;
    const weft_tensor **order = malloc(((size_t)n + 1) * sizeof(const weft_tensor *)); /* sized by the file */
    if (order == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for a list of %d tensors", path, (int)n);
    for (int32_t i = 0; i < n; i++) order[i] = &tensors[i];
    qsort(order, (size_t)n, sizeof *order, compare_by_data);
    for (int32_t i = 0; i < n && status == WEFT_OK; end = begin + order[i]->bytes, i++) {
        begin = order[i]->data - data;
        if (begin < end)
            status = weft_error_set(err, WEFT_E_DATA,
                                    "%s: tensors '%s' and '%s' overlap in bytes %lld to %lld of the data", path,
                                    order[i - 1]->name, order[i]->name, (long long)begin, (long long)end);
        else if (begin > end)
            status = weft_error_set(err, WEFT_E_DATA,
                                    "%s: bytes %lld to %lld of the data, before tensor '%s', belong to no tensor", path,
                                    (long long)end, (long long)begin, order[i]->name);
    }
    if (status == WEFT_OK && end < there)
        status = weft_error_set(err, WEFT_E_DATA, "%s: the last %lld bytes, after tensor '%s', belong to no tensor",
                                path, (long long)(there - end), n == 0 ? "(none)" : order[n - 1]->name);
    free(order);
    return status;
}

/* Appends the tensors of a parsed header. data: `there` bytes after it. */
static weft_status add_tensors(weft_safetensors *self, json_t *header, const unsigned char *data, int64_t there,
                               weft_error *err) {
    const char *path = self->files[self->n_files - 1].path, *name = NULL;
    const int32_t before = self->n_tensors;
    const char *key = NULL;
    json_t *entry = NULL, *value = NULL;
    weft_status status = WEFT_OK;
    const size_t n = (size_t)before + json_object_size(header); /* sized by the file */
    weft_tensor *tensors = n < INT32_MAX ? realloc(self->tensors, (n + 1) * sizeof *tensors) : NULL;
    if (tensors == NULL) return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for %zu tensors", path, n);
    self->tensors = tensors;
    json_object_foreach(header, name, entry) {
        weft_tensor *tensor = &self->tensors[self->n_tensors];
        if (status != WEFT_OK) break;
        if (strcmp(name, "__metadata__") == 0) {
            bool good = json_is_object(entry);
            json_object_foreach(entry, key, value) good = good && json_is_string(value);
            if (!good)
                status = weft_error_set(err, WEFT_E_DATA, "%s: __metadata__ of its header is no object of texts", path);
            continue;
        }
        memset(tensor, 0, sizeof *tensor);
        tensor->file = self->n_files - 1;
        tensor->name = weft_strdup(name);
        self->n_tensors++;
        if (!json_is_object(entry)) return weft_tensor_reject(self, tensor, err, "is not described by an object");
        status = read_dtype(self, tensor, entry, err);
        if (status == WEFT_OK) status = read_shape(self, tensor, entry, err);
        if (status == WEFT_OK) status = read_offsets(self, tensor, entry, data, there, err);
    }
    if (status != WEFT_OK) return status;
    return check_cover(self->tensors + before, self->n_tensors - before, data, there, path, err);
}

static weft_status read_header(weft_safetensors *self, weft_error *err) {
    const weft_tensor_file *file = &self->files[self->n_files - 1];
    uint64_t n = 0;
    json_t *header = NULL;
    char name[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    for (int i = 7; i >= 0; i--) n = n << 8 | file->map[i];
    if (n > HEADER_LIMIT)
        return weft_error_set(
            err, WEFT_E_DATA,
            "%s: it is no safetensors file: its first eight bytes specify a header of %llu bytes. Allowed: at most %d",
            file->path, (unsigned long long)n, HEADER_LIMIT);
    if (n > file->bytes - 8)
        return weft_error_set(
            err, WEFT_E_DATA,
            "%s: its header of %llu bytes does not fit into the file's %zu. Fix: copy or download the "
            "truncated file again",
            file->path, (unsigned long long)n, file->bytes);
    (void)snprintf(name, sizeof name, "%s: header", file->path);
    status = weft_json_parse(&header, (const char *)file->map + 8, n, 0, name, err);
    if (status != WEFT_OK) return status;
    status = add_tensors(self, header, file->map + 8 + n, (int64_t)(file->bytes - 8 - n), err);
    json_decref(header);
    return status;
}

/* ---- opening and reading ---- */

/* Maps a file and appends its tensors. weft_safetensors_close releases it, also after a failure. */
static weft_status add_file(weft_safetensors *self, const char *path, weft_error *err) {
    weft_tensor_file *file = NULL;
    struct stat about;
    void *map = NULL;
    self->files = weft_realloc(self->files, self->n_files + 1, sizeof *self->files);
    file = &self->files[self->n_files++];
    *file = (weft_tensor_file){.path = weft_strdup(path), .descriptor = -1};
    file->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a pipe's writer */
    if (file->descriptor < 0)
        return weft_error_set(err, errno == ENOENT ? WEFT_E_USER : WEFT_E_SYSTEM, "%s: cannot be opened: %s", path,
                              strerror(errno));
    (void)posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL); /* doubles the read-ahead */
    if (fstat(file->descriptor, &about) != 0 || !S_ISREG(about.st_mode))
        return weft_error_set(err, WEFT_E_USER, "%s: is not a file", path);
    if (about.st_size < 8)
        return weft_error_set(err, WEFT_E_DATA, "%s: has %lld bytes; a safetensors file has at least 8", path,
                              (long long)about.st_size);
    map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file->descriptor, 0);
    if (map == MAP_FAILED) return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be mapped: %s", path, strerror(errno));
    file->map = map;
    file->bytes = (size_t)about.st_size;
    return read_header(self, err);
}

static int compare_by_name(const void *a, const void *b) {
    return strcmp(((const weft_tensor *)a)->name, ((const weft_tensor *)b)->name);
}

void weft_safetensors_sort(weft_safetensors *self) {
    if (self->n_tensors > 0) qsort(self->tensors, (size_t)self->n_tensors, sizeof *self->tensors, compare_by_name);
}

/* Finishes an open: sorts the tensors and returns self in *out, or closes self if status is a failure. */
static weft_status finish_open(weft_safetensors **out, weft_safetensors *self, weft_status status) {
    if (status != WEFT_OK) {
        weft_safetensors_close(self);
        return status;
    }
    weft_safetensors_sort(self);
    *out = self;
    return WEFT_OK;
}

weft_status weft_safetensors_open(weft_safetensors **out, const char *path, weft_error *err) {
    weft_safetensors *self = weft_alloc(1, sizeof *self);
    return finish_open(out, self, add_file(self, path, err));
}

void weft_safetensors_close(weft_safetensors *self) {
    if (self == NULL) return;
    weft_ahead_stop(self->ahead);
    for (int32_t i = 0; i < self->n_tensors; i++) {
        free(self->tensors[i].name);
        weft_joined_free(self->tensors[i].joined);
    }
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

/* A disk can read about this much while the optimizer's states are cleared, and the page cache still has it afterwards.
 */
enum { LEAD = 1 << 30 };

void weft_safetensors_read_ahead(weft_safetensors *self) {
    if (self->ahead == NULL) self->ahead = weft_ahead_start(self->files, self->n_files, LEAD);
}

weft_status weft_safetensors_read(const weft_safetensors *self, void *out, const weft_tensor *tensor, int64_t offset,
                                  int64_t bytes, weft_error *err) {
    const weft_tensor_file *file = &self->files[tensor->file];
    const int64_t begin = tensor->data - file->map + offset;
    int64_t done = 0;
    if (tensor->joined != NULL) return weft_joined_read(self, out, tensor->joined, offset, bytes, err);
    while (done < bytes) {
        const ssize_t n = pread(file->descriptor, (char *)out + done, (size_t)(bytes - done), (off_t)(begin + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return weft_error_set(err, WEFT_E_SYSTEM, "%s: tensor '%s' cannot be read at byte %lld: %s", file->path,
                                  tensor->name, (long long)(begin + done), strerror(errno));
        if (n == 0)
            return weft_error_set(
                err, WEFT_E_DATA,
                "%s: ends at byte %lld, within tensor '%s', but was longer when it was opened: another "
                "program has changed it. Fix: start again when the file is complete",
                file->path, (long long)lseek(file->descriptor, 0, SEEK_END), tensor->name);
        done += n;
    }
    return WEFT_OK;
}

/* ---- a Hugging Face directory: its files, and an index that must match them ---- */

/* Accepts only a plain file name in the index's directory. */
static bool is_shard_name_good(const char *name) {
    return name != NULL && weft_words_end(name, ".safetensors") && strcmp(name, ".safetensors") != 0 &&
           strchr(name, '/') == NULL;
}

/* Opens each file that the map names, without duplicates. */
static weft_status add_shards(weft_safetensors *self, const char *directory, const char *index_path, json_t *map,
                              weft_error *err) {
    const char *tensor = NULL;
    json_t *value = NULL, *opened = json_object();
    weft_status status = WEFT_OK;
    json_object_foreach(map, tensor, value) {
        const char *name = json_string_value(value);
        char *path = NULL;
        bool is_there = false;
        if (status != WEFT_OK) break;
        if (!is_shard_name_good(name)) {
            status = weft_error_set(
                err, WEFT_E_DATA,
                "%s: puts tensor '%s' into '%s'. Allowed: the name of a .safetensors file in the same directory",
                index_path, tensor, name == NULL ? "(no text)" : name);
            break;
        }
        if (json_object_get(opened, name) != NULL) continue;
        (void)json_object_set_new(opened, name, json_true());
        path = weft_text_of("%s/%s", directory, name);
        status = weft_file_exists(&is_there, path, err);
        if (status == WEFT_OK && !is_there)
            status = weft_error_set(err, WEFT_E_USER,
                                    "%s: is missing, but %s puts tensor '%s' into it. Fix: copy or download it again",
                                    path, index_path, tensor);
        else if (status == WEFT_OK) status = add_file(self, path, err);
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
            return weft_error_set(err, WEFT_E_DATA, "%s: has tensor '%s', which %s lacks", path, tensor->name,
                                  index_path);
        if (strcmp(strrchr(path, '/') + 1, said) != 0)
            return weft_error_set(err, WEFT_E_DATA, "%s: has tensor '%s', which %s puts into '%s'", path, tensor->name,
                                  index_path, said);
    }
    json_object_foreach(map, name, value) {
        if (weft_safetensors_find(self, name) == NULL)
            return weft_error_set(err, WEFT_E_DATA, "%s: puts tensor '%s' into '%s', which lacks it", index_path, name,
                                  json_string_value(value));
    }
    return WEFT_OK;
}

static weft_status open_index(weft_safetensors **out, const char *directory, const char *index_path, weft_error *err) {
    weft_safetensors *self = NULL;
    json_t *index = NULL, *map = NULL;
    weft_status status = weft_json_read(&index, index_path, 0, err);
    map = json_object_get(index, "weight_map");
    if (status == WEFT_OK && json_object_size(map) == 0)
        status =
            weft_error_set(err, WEFT_E_DATA, "%s: has no weight_map that names the file of each tensor", index_path);
    if (status == WEFT_OK) {
        self = weft_alloc(1, sizeof *self);
        status = finish_open(&self, self, add_shards(self, directory, index_path, map, err));
    }
    if (status == WEFT_OK) {
        status = check_index(self, index_path, map, err);
        if (status == WEFT_OK) *out = self;
        else weft_safetensors_close(self);
    }
    json_decref(index);
    return status;
}

/* Reports missing weights. Files of torch.save are not read: they contain a program that creates the weights. */
static weft_status refuse_directory(const char *directory, weft_error *err) {
    bool has_pickles = false;
    (void)weft_tree_has(&has_pickles, directory, "pytorch_model.bin", NULL);
    if (!has_pickles)
        return weft_error_set(
            err, WEFT_E_USER,
            "%s: has neither model.safetensors nor model.safetensors.index.json. Fix: convert weights in other formats "
            "with save_pretrained of transformers; or set [model] start = fresh, which reads no weights",
            directory);
    return weft_error_set(
        err, WEFT_E_USER,
        "%s: its weights are in pytorch_model.bin, a pickle file, which can run any code when it is read. "
        "Fix: convert it to model.safetensors, with transformers installed: python3 -c 'import sys; from transformers "
        "import "
        "AutoModelForCausalLM as m; "
        "m.from_pretrained(sys.argv[1], torch_dtype=\"auto\").save_pretrained(sys.argv[1])' %s",
        directory, directory);
}

weft_status weft_safetensors_open_directory(weft_safetensors **out, const char *directory, weft_error *err) {
    char *single = weft_text_of("%s/model.safetensors", directory);
    char *index = weft_text_of("%s/model.safetensors.index.json", directory);
    bool has_single = false, has_index = false;
    weft_status status = weft_file_exists(&has_single, single, err);
    if (status == WEFT_OK && !has_single) status = weft_file_exists(&has_index, index, err);
    if (status != WEFT_OK) goto done;
    if (has_single) status = weft_safetensors_open(out, single, err);
    else if (has_index) status = open_index(out, directory, index, err);
    else status = refuse_directory(directory, err);
    if (status != WEFT_OK) goto done;
    status = weft_bitsandbytes_join(*out, err);
    if (status == WEFT_OK) goto done;
    weft_safetensors_close(*out);
    *out = NULL;
done:
    free(index);
    free(single);
    return status;
}

/* ---- writing: the header fixes the layout, so data may follow in any order and from any process that has the list */

enum { ALIGNMENT = 64 };

typedef struct place {
    int64_t offset, bytes; /* from the start of the file */
} place;

struct weft_tensor_writer {
    char *path;
    int descriptor;
    int32_t n;
    place *places; /* [n] */
    int64_t data;  /* offset of the data */
    int64_t bytes; /* of the file */
};

static weft_status refuse_write(const weft_tensor_writer *self, int code, weft_error *err) {
    if (code == ENOSPC || code == EDQUOT)
        return weft_error_set(
            err, WEFT_E_SYSTEM,
            "%s: cannot be written: %s; the file needs %lld bytes: free some space or write elsewhere", self->path,
            strerror(code), (long long)self->bytes);
    return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be written: %s", self->path, strerror(code));
}

static weft_status spec_bytes(int64_t *out, const weft_tensor_spec *spec, const char *path, weft_error *err) {
    int64_t bytes = weft_dtype_bytes(spec->dtype);
    bool good = bytes > 0 && spec->rank >= 0 && spec->rank <= WEFT_TENSOR_RANK;
    for (int32_t i = 0; good && i < spec->rank; i++) {
        good = spec->dims[i] >= 0 && (spec->dims[i] == 0 || bytes <= INT64_MAX / 2 / spec->dims[i]);
        if (good) bytes *= spec->dims[i];
    }
    if (!good)
        return weft_error_set(err, WEFT_E_HOST, "%s: tensor '%s' has a type or shape that cannot be written", path,
                              spec->name);
    *out = bytes;
    return WEFT_OK;
}

/* Assigns offsets from the start of the data: larger elements first, so that each begins at a multiple of its own size.
 */
static weft_status place_tensors(weft_tensor_writer *self, const weft_tensor_spec *specs, weft_error *err) {
    int64_t end = 0;
    for (int64_t width = 8; width >= 1; width /= 2) {
        for (int32_t i = 0; i < self->n; i++) {
            weft_status status = WEFT_OK;
            if (weft_dtype_bytes(specs[i].dtype) != width && (width != 1 || weft_dtype_bytes(specs[i].dtype) != 0))
                continue;
            status = spec_bytes(&self->places[i].bytes, &specs[i], self->path, err);
            if (status != WEFT_OK) return status;
            if (end > INT64_MAX / 2 - self->places[i].bytes)
                return weft_error_set(err, WEFT_E_HOST, "%s: would be larger than a file can be", self->path);
            self->places[i].offset = end;
            end += self->places[i].bytes;
        }
    }
    self->bytes = end;
    return WEFT_OK;
}

/* Sets *out to the header as text, which the caller frees. */
static weft_status make_header(char **out, const weft_tensor_writer *self, const weft_tensor_spec *specs,
                               weft_error *err) {
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) {
        const place *at = &self->places[i];
        json_t *shape = json_array(), *tensor = NULL;
        for (int32_t d = 0; d < specs[i].rank; d++) (void)json_array_append_new(shape, json_integer(specs[i].dims[d]));
        tensor = json_pack("{s:s, s:o, s:[I,I]}", "dtype", weft_tensor_dtype_name(specs[i].dtype), "shape", shape,
                           "data_offsets", (json_int_t)at->offset, (json_int_t)(at->offset + at->bytes));
        if (json_object_get(header, specs[i].name) != NULL)
            status = weft_error_set(err, WEFT_E_HOST, "%s: two tensors have the name '%s'", self->path, specs[i].name);
        else if (json_object_set(header, specs[i].name, tensor) != 0)
            status = weft_error_set(err, WEFT_E_HOST, "%s: tensor '%s' has a name that is not UTF-8", self->path,
                                    specs[i].name);
        json_decref(tensor);
    }
    if (status == WEFT_OK) *out = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    return status;
}

static weft_status write_bytes_at(const weft_tensor_writer *self, int64_t offset, const void *data, int64_t bytes,
                                  weft_error *err) {
    const char *from = data;
    while (bytes > 0) {
        const ssize_t n = pwrite(self->descriptor, from, (size_t)bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return refuse_write(self, n < 0 ? errno : ENOSPC, err);
        from += n;
        offset += n;
        bytes -= n;
    }
    return WEFT_OK;
}

/* Creates the file, writes the header and reserves the full size. */
static weft_status create_file(weft_tensor_writer *self, const char *text, weft_error *err) {
    const size_t n = strlen(text), data = (size_t)self->data;
    weft_status status = WEFT_OK;
    char *bytes = NULL;
    int code = 0;
    self->descriptor = open(self->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (self->descriptor < 0) return refuse_write(self, errno, err);
    bytes = weft_alloc(data, 1);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(unsigned char)((uint64_t)(data - 8) >> (8 * i));
    memcpy(bytes + 8, text, n);
    memset(bytes + 8 + n, ' ', data - 8 - n);
    status = write_bytes_at(self, 0, bytes, (int64_t)data, err);
    if (status == WEFT_OK) code = posix_fallocate(self->descriptor, 0, (off_t)self->bytes);
    if (code != 0) status = refuse_write(self, code, err);
    free(bytes);
    if (status != WEFT_OK) (void)unlink(self->path);
    return status;
}

static weft_status join_file(weft_tensor_writer *self, weft_error *err) {
    struct stat about;
    self->descriptor = open(self->path, O_RDWR | O_CLOEXEC);
    if (self->descriptor < 0 || fstat(self->descriptor, &about) != 0) return refuse_write(self, errno, err);
    if (about.st_size == (off_t)self->bytes) return WEFT_OK;
    return weft_error_set(
        err, WEFT_E_SYSTEM,
        "%s: has %lld bytes, but another rank created it with %lld. Fix: use a directory that all ranks "
        "share",
        self->path, (long long)about.st_size, (long long)self->bytes);
}

weft_status weft_tensor_writer_open(weft_tensor_writer **out, const char *path, const weft_tensor_spec *specs,
                                    int32_t n, bool creates, weft_error *err) {
    weft_status status = WEFT_OK;
    char *text = NULL;
    weft_tensor_writer *self = weft_alloc(1, sizeof *self);
    self->descriptor = -1;
    self->n = n;
    self->path = weft_strdup(path);
    self->places = weft_alloc(n, sizeof *self->places);
    status = place_tensors(self, specs, err);
    if (status == WEFT_OK) status = make_header(&text, self, specs, err);
    if (status == WEFT_OK) self->data = weft_round_up(8 + (int64_t)strlen(text), ALIGNMENT); /* padded by blanks */
    if (status == WEFT_OK && self->data - 8 > HEADER_LIMIT)
        status = weft_error_set(err, WEFT_E_HOST, "%s: its header of %lld bytes is larger than the format allows",
                                self->path, (long long)self->data - 8);
    self->bytes += self->data;
    for (int32_t i = 0; i < n; i++) self->places[i].offset += self->data;
    if (status == WEFT_OK) status = creates ? create_file(self, text, err) : join_file(self, err);
    free(text);
    if (status == WEFT_OK) *out = self;
    else weft_tensor_writer_cancel(self);
    return status;
}

int64_t weft_tensor_writer_offset(const weft_tensor_writer *self, int32_t tensor) {
    return self->places[tensor].offset;
}

weft_status weft_tensor_writer_put(weft_tensor_writer *self, int64_t offset, const void *data, int64_t bytes,
                                   weft_error *err) {
    if (bytes < 0 || offset < self->data || offset > self->bytes - bytes)
        return weft_error_set(err, WEFT_E_HOST, "%s: bytes %lld to %lld of the file are outside of its tensors",
                              self->path, (long long)offset, (long long)(offset + bytes));
    return write_bytes_at(self, offset, data, bytes, err);
}

weft_status weft_tensor_writer_write(weft_tensor_writer *self, int32_t tensor, int64_t offset, const void *data,
                                     int64_t bytes, weft_error *err) {
    const place *at = tensor >= 0 && tensor < self->n ? &self->places[tensor] : NULL;
    if (at == NULL || offset < 0 || bytes < 0 || offset > at->bytes - bytes)
        return weft_error_set(err, WEFT_E_HOST, "%s: bytes %lld to %lld of tensor %d are outside of it", self->path,
                              (long long)offset, (long long)(offset + bytes), tensor);
    return write_bytes_at(self, at->offset + offset, data, bytes, err);
}

weft_status weft_tensor_writer_finish(weft_tensor_writer *self, weft_error *err) {
    weft_status status = WEFT_OK;
    if (fsync(self->descriptor) != 0) status = refuse_write(self, errno, err);
    if (close(self->descriptor) != 0 && status == WEFT_OK) status = refuse_write(self, errno, err);
    self->descriptor = -1;
    weft_tensor_writer_cancel(self);
    return status;
}

void weft_tensor_writer_cancel(weft_tensor_writer *self) {
    if (self == NULL) return;
    if (self->descriptor >= 0) (void)close(self->descriptor);
    free(self->places);
    free(self->path);
    free(self);
}
