/* host/run/entry.c: see entry.h. Files are read with pread rather than through a map, so that hashing a large
 * file does not make the process look as large as the file. */
#include "run/entry.h"

#include "base/hash.h"
#include "base/sizes.h"
#include "model/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 };

/* One file that is hashed. */
typedef struct reading {
    const char *path;
    int descriptor;
    int64_t bytes;
    unsigned char *chunk; /* CHUNK bytes */
    weft_hash whole, cell;
} reading;

static weft_status no_memory_for_entry(const char *path, weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory to hash it", path);
}

static weft_status reading_open(reading *self, const char *path, weft_error *err) {
    struct stat about;
    memset(self, 0, sizeof *self);
    self->path = path;
    self->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    if (self->descriptor < 0)
        return weft_error_set(err, errno == ENOENT ? WEFT_E_DATA : WEFT_E_SYSTEM, "%s: %s", path,
                              errno == ENOENT ? "is missing" : strerror(errno));
    if (fstat(self->descriptor, &about) != 0 || !S_ISREG(about.st_mode))
        return weft_error_set(err, WEFT_E_DATA, "%s: is not a file", path);
    self->bytes = about.st_size;
    self->chunk = malloc(CHUNK);
    return self->chunk == NULL ? no_memory_for_entry(path, err) : WEFT_OK;
}

static void reading_close(reading *self) {
    if (self->descriptor >= 0) (void)close(self->descriptor);
    free(self->chunk);
    weft_hash_free(&self->whole);
    weft_hash_free(&self->cell);
}

/* Bytes [offset, offset + n) of the file into the chunk. */
static weft_status read_chunk(const reading *self, int64_t offset, int64_t n, weft_error *err) {
    int64_t done = 0;
    while (done < n) {
        const ssize_t got = pread(self->descriptor, self->chunk + done, (size_t)(n - done), (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s", self->path, strerror(errno));
        if (got == 0)
            return weft_error_set(err, WEFT_E_DATA, "%s: ends at byte %lld", self->path, (long long)(offset + done));
        done += got;
    }
    return WEFT_OK;
}

/* SHA-256 of bytes [begin, end), in hex. */
static weft_status hash_range(reading *self, char hex[65], int64_t begin, int64_t end, weft_error *err) {
    unsigned char digest[WEFT_HASH_BYTES];
    weft_status status = weft_hash_start(&self->whole, err);
    for (int64_t at = begin; at < end && status == WEFT_OK; at += CHUNK) {
        const int64_t n = weft_smaller(end - at, CHUNK);
        status = read_chunk(self, at, n, err);
        if (status == WEFT_OK) weft_hash_put(&self->whole, self->chunk, (size_t)n);
    }
    if (status == WEFT_OK) status = weft_hash_finish(&self->whole, digest, err);
    if (status == WEFT_OK) weft_hash_hex(hex, digest);
    return status;
}

/* Adds the hashes of the cells in the chunk's first n bytes to the root. */
static weft_status hash_cells(reading *self, int64_t n, int64_t cell_bytes, weft_error *err) {
    unsigned char digest[WEFT_HASH_BYTES];
    weft_status status = WEFT_OK;
    for (int64_t at = 0; at < n && status == WEFT_OK; at += cell_bytes) {
        status = weft_hash_start(&self->cell, err);
        weft_hash_put(&self->cell, self->chunk + at, (size_t)weft_smaller(n - at, cell_bytes));
        if (status == WEFT_OK) status = weft_hash_finish(&self->cell, digest, err);
        weft_hash_put(&self->whole, digest, sizeof digest);
    }
    return status;
}

/* The root of a tensor of `bytes` bytes that begin at `begin`. */
static weft_status hash_tensor(reading *self, char hex[65], int64_t begin, int64_t bytes, int64_t cell_bytes,
                               weft_error *err) {
    const int64_t step = CHUNK / cell_bytes * cell_bytes;
    unsigned char digest[WEFT_HASH_BYTES];
    weft_status status = weft_hash_start(&self->whole, err);
    for (int64_t at = 0; at < bytes && status == WEFT_OK; at += step) {
        const int64_t n = weft_smaller(bytes - at, step);
        status = read_chunk(self, begin + at, n, err);
        if (status == WEFT_OK) status = hash_cells(self, n, cell_bytes, err);
    }
    if (status == WEFT_OK) status = weft_hash_finish(&self->whole, digest, err);
    if (status == WEFT_OK) weft_hash_hex(hex, digest);
    return status;
}

static bool is_safetensors(const char *path) {
    static const char end[] = ".safetensors";
    const size_t n = strlen(path), m = sizeof end - 1;
    return n > m && strcmp(path + n - m, end) == 0;
}

static weft_status add_tensors(reading *self, json_t *tensors, const weft_safetensors *file, int64_t grid,
                               weft_error *err) {
    char hex[65];
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < file->n_tensors && status == WEFT_OK; i++) {
        const weft_tensor *tensor = &file->tensors[i];
        status = hash_tensor(self, hex, tensor->data - file->files[0].map, tensor->bytes,
                             weft_packed_cell(tensor, grid), err);
        if (status == WEFT_OK && json_object_set_new(tensors, tensor->name, json_string(hex)) != 0)
            status = no_memory_for_entry(self->path, err);
    }
    return status;
}

static weft_status hash_header(reading *self, char hex[65], const weft_safetensors *file, weft_error *err) {
    int64_t header = 8;
    for (int i = 0; i < 8; i++) header += (int64_t)file->files[0].map[i] << (8 * i); /* proved by open */
    return hash_range(self, hex, 0, header, err);
}

/* {"bytes", "header_sha256", "tensors"} */
static weft_status make_tensors_entry(reading *self, json_t **out, int64_t grid, json_t *known, weft_error *err) {
    weft_safetensors *file = NULL;
    json_t *tensors = known != NULL ? json_incref(known) : json_object(), *entry = NULL;
    char hex[65];
    weft_status status = weft_safetensors_open(&file, self->path, err);
    if (status == WEFT_OK) status = hash_header(self, hex, file, err);
    if (status == WEFT_OK && known == NULL) status = add_tensors(self, tensors, file, grid, err);
    if (status == WEFT_OK && json_object_size(tensors) != (size_t)file->n_tensors)
        status = weft_error_set(err, WEFT_E_HOST, "%s: has %d tensors, of which %zu have a hash", self->path,
                                (int)file->n_tensors, json_object_size(tensors));
    if (status == WEFT_OK) {
        entry =
            json_pack("{s:I, s:s, s:O}", "bytes", (json_int_t)self->bytes, "header_sha256", hex, "tensors", tensors);
        if (entry == NULL) status = no_memory_for_entry(self->path, err);
    }
    if (status == WEFT_OK) *out = entry;
    json_decref(tensors);
    weft_safetensors_close(file);
    return status;
}

static weft_status make_plain_entry(reading *self, json_t **out, weft_error *err) {
    char hex[65];
    const weft_status status = hash_range(self, hex, 0, self->bytes, err);
    json_t *entry = NULL;
    if (status != WEFT_OK) return status;
    entry = json_pack("{s:I, s:s}", "bytes", (json_int_t)self->bytes, "sha256", hex);
    if (entry == NULL) return no_memory_for_entry(self->path, err);
    *out = entry;
    return WEFT_OK;
}

weft_status weft_entry_make(json_t **out, const char *path, int64_t grid, json_t *tensors, weft_error *err) {
    reading self;
    weft_status status = reading_open(&self, path, err);
    if (status == WEFT_OK)
        status = is_safetensors(path) ? make_tensors_entry(&self, out, grid, tensors, err)
                                      : make_plain_entry(&self, out, err);
    reading_close(&self);
    return status;
}

/* ---- verifying ---- */

static weft_status check_size(const json_t *entry, const char *path, weft_error *err) {
    const json_int_t said = json_integer_value(json_object_get(entry, "bytes"));
    struct stat about;
    if (stat(path, &about) != 0)
        return weft_error_set(err, errno == ENOENT ? WEFT_E_DATA : WEFT_E_SYSTEM, "%s: %s", path,
                              errno == ENOENT ? "is missing" : strerror(errno));
    if (!json_is_integer(json_object_get(entry, "bytes")))
        return weft_error_set(err, WEFT_E_DATA, "%s: has no size in the manifest", path);
    if ((json_int_t)about.st_size != said)
        return weft_error_set(err, WEFT_E_DATA, "%s: has %lld bytes, and the manifest says %lld", path,
                              (long long)about.st_size, (long long)said);
    return WEFT_OK;
}

static bool deals_to_this_rank(weft_shares *shares, int64_t bytes) {
    int32_t least = 0;
    for (int32_t rank = 1; rank < shares->world; rank++)
        if (shares->bytes[rank] < shares->bytes[least]) least = rank;
    shares->bytes[least] += bytes;
    return least == shares->rank;
}

static bool is_hash_of_entry(const json_t *entry, const char *key, const char *hex) {
    const char *said = json_string_value(json_object_get(entry, key));
    return said != NULL && strcmp(said, hex) == 0;
}

static weft_status refuse_other_file(const char *path, weft_error *err) {
    return weft_error_set(err, WEFT_E_DATA, "%s: is not the file that was saved: its SHA-256 differs", path);
}

static weft_status verify_tensors(reading *self, const json_t *entry, int64_t grid, weft_shares *shares,
                                  weft_error *err) {
    const json_t *said = json_object_get(entry, "tensors");
    weft_safetensors *file = NULL;
    char hex[65];
    weft_status status = weft_safetensors_open(&file, self->path, err);
    if (status == WEFT_OK) status = hash_header(self, hex, file, err);
    if (status == WEFT_OK &&
        (!is_hash_of_entry(entry, "header_sha256", hex) || json_object_size(said) != (size_t)file->n_tensors))
        status = refuse_other_file(self->path, err);
    for (int32_t i = 0; status == WEFT_OK && i < file->n_tensors; i++) {
        const weft_tensor *tensor = &file->tensors[i];
        if (!deals_to_this_rank(shares, tensor->bytes)) continue;
        status = hash_tensor(self, hex, tensor->data - file->files[0].map, tensor->bytes,
                             weft_packed_cell(tensor, grid), err);
        if (status == WEFT_OK && !is_hash_of_entry(said, tensor->name, hex))
            status = weft_error_set(err, WEFT_E_DATA,
                                    "%s: tensor '%s' is not the one that was saved: its SHA-256 differs", self->path,
                                    tensor->name);
    }
    weft_safetensors_close(file);
    return status;
}

static weft_status verify_plain(reading *self, const json_t *entry, weft_shares *shares, weft_error *err) {
    char hex[65];
    weft_status status = WEFT_OK;
    if (!deals_to_this_rank(shares, self->bytes)) return WEFT_OK;
    status = hash_range(self, hex, 0, self->bytes, err);
    return status == WEFT_OK && !is_hash_of_entry(entry, "sha256", hex) ? refuse_other_file(self->path, err) : status;
}

weft_status weft_entry_verify(const json_t *entry, const char *path, int64_t grid, weft_shares *shares,
                              weft_error *err) {
    reading self;
    weft_status status = check_size(entry, path, err);
    if (status != WEFT_OK || shares == NULL) return status;
    status = reading_open(&self, path, err);
    if (status == WEFT_OK)
        status = is_safetensors(path) ? verify_tensors(&self, entry, grid, shares, err)
                                      : verify_plain(&self, entry, shares, err);
    reading_close(&self);
    return status;
}
