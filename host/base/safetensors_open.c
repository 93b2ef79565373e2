/* host/base/safetensors_open.c: see safetensors.h. Maps and reads files. safetensors_header.c parses headers,
 * safetensors_directory.c opens directories, and safetensors_write.c writes. */
#include "base/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ahead.h"
#include "base/joined.h"
#include "base/safetensors_parts.h"

weft_status weft_safetensors_no_memory(const char *path, weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its list of tensors", path);
}

/* Opens and maps a file. weft_safetensors_close releases it, also after a failure. */
static weft_status map_file(weft_tensor_file *file, weft_error *err) {
    weft_status status = WEFT_OK;
    struct stat about;
    file->descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* rejects a pipe instead of waiting
                                                                             * for it */
    if (file->descriptor < 0)
        return weft_error_set(err, errno == ENOENT ? WEFT_E_USER : WEFT_E_SYSTEM, "%s: cannot be opened: %s",
                              file->path, strerror(errno));
    (void)posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL); /* doubles the read-ahead */
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

weft_status weft_safetensors_add(weft_safetensors *self, const char *path, weft_error *err) {
    weft_tensor_file *file = &self->files[self->n_files];
    weft_status status = WEFT_OK;
    memset(file, 0, sizeof *file);
    file->descriptor = -1;
    file->path = strdup(path);
    if (file->path == NULL) return weft_safetensors_no_memory(path, err);
    self->n_files++;
    status = map_file(file, err);
    if (status == WEFT_OK) status = weft_safetensors_read_header(self, err);
    return status;
}

static int compare_by_name(const void *a, const void *b) {
    return strcmp(((const weft_tensor *)a)->name, ((const weft_tensor *)b)->name);
}

weft_status weft_safetensors_make(weft_safetensors **out, size_t n_files, const char *path, weft_error *err) {
    weft_safetensors *self = calloc(1, sizeof *self);
    if (self == NULL) return weft_safetensors_no_memory(path, err);
    self->files = calloc(n_files + 1, sizeof *self->files);
    if (self->files == NULL) {
        free(self);
        return weft_safetensors_no_memory(path, err);
    }
    *out = self;
    return WEFT_OK;
}

weft_status weft_safetensors_give(weft_safetensors **out, weft_safetensors *self, weft_status status) {
    if (status == WEFT_OK) {
        if (self->n_tensors > 0) qsort(self->tensors, (size_t)self->n_tensors, sizeof *self->tensors, compare_by_name);
        *out = self;
    } else {
        weft_safetensors_close(self);
    }
    return status;
}

weft_status weft_safetensors_open(weft_safetensors **out, const char *path, weft_error *err) {
    weft_safetensors *self = NULL;
    weft_status status = weft_safetensors_make(&self, 1, path, err);
    if (status == WEFT_OK) status = weft_safetensors_add(self, path, err);
    return weft_safetensors_give(out, self, status);
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

/* Returns the current end of the file: a mapped offset beyond it cannot show the truncation. */
static int64_t find_file_end(const weft_tensor_file *file) {
    struct stat info;
    return fstat(file->descriptor, &info) == 0 ? (int64_t)info.st_size : 0;
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
            return weft_error_set(err, WEFT_E_DATA,
                                  "%s: ends at byte %lld, within tensor '%s', though it was longer when it was opened; "
                                  "another program has changed it: start again when it is whole",
                                  file->path, (long long)find_file_end(file), tensor->name);
        done += n;
    }
    return WEFT_OK;
}
