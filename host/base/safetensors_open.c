/* host/base/safetensors_open.c: opens, maps and reads files and directories. safetensors.c parses their headers. */
#include "base/ahead.h"
#include "base/alloc.h"
#include "base/bitsandbytes.h"
#include "base/file.h"
#include "base/safetensors.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
    return weft_safetensors_read_header(self, err);
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
