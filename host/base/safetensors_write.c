/* host/base/safetensors_write.c: writes safetensors files. The header is written first and fixes the layout, so data
 * may follow in any order and from any process that has the list. */
#include "base/safetensors.h"
#include "base/safetensors_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGNMENT = 64, HEADER_LIMIT = 100 << 20 };

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

/* ---- the header ---- */

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

/* Returns {"dtype": ..., "shape": [...], "data_offsets": [...]}; NULL: no memory. */
static json_t *tensor_json(const weft_tensor_spec *spec, const place *at) {
    json_t *shape = json_array();
    for (int32_t i = 0; i < spec->rank; i++)
        if (json_array_append_new(shape, json_integer(spec->dims[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", weft_tensor_dtype_name(spec->dtype), "shape", shape,
                     "data_offsets", (json_int_t)at->offset, (json_int_t)(at->offset + at->bytes));
}

/* Returns the header as text, which the caller frees; sets err on failure. */
static char *header_text(const weft_tensor_writer *self, const weft_tensor_spec *specs, weft_error *err) {
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    bool good = header != NULL, twice = false;
    char *text = NULL;
    for (int32_t i = 0; good && !twice && i < self->n; i++) {
        twice = json_object_get(header, specs[i].name) != NULL;
        if (twice)
            (void)weft_error_set(err, WEFT_E_HOST, "%s: tensor '%s' would be written twice", self->path, specs[i].name);
        else good = json_object_set_new(header, specs[i].name, tensor_json(&specs[i], &self->places[i])) == 0;
    }
    if (good && !twice) text = json_dumps(header, JSON_COMPACT);
    if (text == NULL && !twice) (void)weft_safetensors_no_memory(self->path, err);
    json_decref(header);
    return text;
}

/* ---- the file ---- */

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

/* Sets the offset of the data: after the length, the text, and padding blanks. */
static weft_status place_data(weft_tensor_writer *self, const char *text, weft_error *err) {
    self->data = (int64_t)(8 + strlen(text) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (self->data - 8 > HEADER_LIMIT)
        return weft_error_set(err, WEFT_E_HOST, "%s: its header of %lld bytes is larger than the format allows",
                              self->path, (long long)self->data - 8);
    self->bytes += self->data;
    for (int32_t i = 0; i < self->n; i++) self->places[i].offset += self->data;
    return WEFT_OK;
}

/* Writes the header and reserves the full size. */
static weft_status write_header(weft_tensor_writer *self, const char *text, weft_error *err) {
    const size_t n = strlen(text), data = (size_t)self->data;
    weft_status status = WEFT_OK;
    char *bytes = malloc(data);
    int code = 0;
    if (bytes == NULL) return weft_safetensors_no_memory(self->path, err);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(unsigned char)((uint64_t)(data - 8) >> (8 * i));
    memcpy(bytes + 8, text, n);
    memset(bytes + 8 + n, ' ', data - 8 - n);
    status = write_bytes_at(self, 0, bytes, (int64_t)data, err);
    if (status == WEFT_OK) code = posix_fallocate(self->descriptor, 0, (off_t)self->bytes);
    if (code != 0) status = refuse_write(self, code, err);
    free(bytes);
    return status;
}

static weft_status create_file(weft_tensor_writer *self, const char *text, weft_error *err) {
    weft_status status = WEFT_OK;
    self->descriptor = open(self->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (self->descriptor < 0) return refuse_write(self, errno, err);
    status = write_header(self, text, err);
    if (status != WEFT_OK) (void)unlink(self->path);
    return status;
}

static weft_status join_file(weft_tensor_writer *self, weft_error *err) {
    struct stat about;
    self->descriptor = open(self->path, O_RDWR | O_CLOEXEC);
    if (self->descriptor < 0 || fstat(self->descriptor, &about) != 0) return refuse_write(self, errno, err);
    if (about.st_size == (off_t)self->bytes) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM,
                          "%s: has %lld bytes where another rank has just made it with %lld: all ranks must see the "
                          "same file system there",
                          self->path, (long long)about.st_size, (long long)self->bytes);
}

static weft_status writer_open(weft_tensor_writer **out, const char *path, const weft_tensor_spec *specs, int32_t n,
                               bool creates, weft_error *err) {
    weft_status status = WEFT_OK;
    char *text = NULL;
    weft_tensor_writer *self = calloc(1, sizeof *self);
    if (self == NULL) return weft_safetensors_no_memory(path, err);
    self->descriptor = -1;
    self->n = n;
    self->path = strdup(path);
    self->places = calloc((size_t)n + 1, sizeof *self->places);
    if (self->path == NULL || self->places == NULL) status = weft_safetensors_no_memory(path, err);
    else status = place_tensors(self, specs, err);
    if (status == WEFT_OK) {
        text = header_text(self, specs, err);
        if (text == NULL) status = err == NULL ? WEFT_E_HOST : (weft_status)err->code;
    }
    if (status == WEFT_OK) status = place_data(self, text, err);
    if (status == WEFT_OK) status = creates ? create_file(self, text, err) : join_file(self, err);
    free(text);
    if (status == WEFT_OK) *out = self;
    else weft_tensor_writer_cancel(self);
    return status;
}

weft_status weft_tensor_writer_create(weft_tensor_writer **out, const char *path, const weft_tensor_spec *specs,
                                      int32_t n, weft_error *err) {
    return writer_open(out, path, specs, n, true, err);
}

weft_status weft_tensor_writer_join(weft_tensor_writer **out, const char *path, const weft_tensor_spec *specs,
                                    int32_t n, weft_error *err) {
    return writer_open(out, path, specs, n, false, err);
}

int64_t weft_tensor_writer_offset(const weft_tensor_writer *self, int32_t tensor) {
    return self->places[tensor].offset;
}

int64_t weft_tensor_writer_bytes(const weft_tensor_writer *self) {
    return self->bytes;
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
