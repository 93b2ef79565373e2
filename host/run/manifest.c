/* host/run/manifest.c: writes and verifies manifests, and hashes the files. */
#include "run/manifest.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/units.h"
#include "model/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT = 1, GRID_LIMIT = 1 << 17, CHUNK = 1 << 20 };

/* Verification is shared by the ranks: the one with the fewest bytes takes the next tensor or file. */
typedef struct shares {
    int32_t rank, world;
    int64_t *bytes; /* [world] taken so far */
} shares;

/* A file that is hashed. It is read with pread: a map would make the process look as large as the file. */
typedef struct reading {
    const char *path;
    int descriptor;
    int64_t bytes;
    unsigned char *chunk; /* CHUNK bytes */
    weft_hash whole, cell;
} reading;

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
    self->chunk = weft_alloc(CHUNK, 1);
    return WEFT_OK;
}

static void reading_close(reading *self) {
    if (self->descriptor >= 0) (void)close(self->descriptor);
    free(self->chunk);
    weft_hash_free(&self->whole);
    weft_hash_free(&self->cell);
}

/* Reads bytes [offset, offset + n) of the file into the chunk. */
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

/* SHA-256 in hex of `bytes` bytes from `begin` on: of the bytes themselves, or, if cell_bytes > 0, of the SHA-256 of
 * each grid cell. */
static weft_status hash_range(reading *self, char hex[65], int64_t begin, int64_t bytes, int64_t cell_bytes,
                              weft_error *err) {
    const int64_t step = cell_bytes == 0 ? CHUNK : CHUNK / cell_bytes * cell_bytes;
    unsigned char digest[WEFT_HASH_BYTES];
    weft_status status = weft_hash_start(&self->whole, err);
    for (int64_t at = 0; at < bytes && status == WEFT_OK; at += step) {
        const int64_t n = weft_smaller(bytes - at, step);
        status = read_chunk(self, begin + at, n, err);
        if (status == WEFT_OK && cell_bytes == 0) weft_hash_put(&self->whole, self->chunk, (size_t)n);
        for (int64_t cell = 0; cell_bytes > 0 && cell < n && status == WEFT_OK; cell += cell_bytes) {
            status = weft_hash_start(&self->cell, err);
            weft_hash_put(&self->cell, self->chunk + cell, (size_t)weft_smaller(n - cell, cell_bytes));
            if (status == WEFT_OK) status = weft_hash_finish(&self->cell, digest, err);
            weft_hash_put(&self->whole, digest, sizeof digest);
        }
    }
    if (status == WEFT_OK) status = weft_hash_finish(&self->whole, digest, err);
    if (status == WEFT_OK) weft_hash_hex(hex, digest);
    return status;
}

static weft_status hash_tensor(reading *self, char hex[65], const weft_safetensors *file, int32_t index, int64_t grid,
                               weft_error *err) {
    const weft_tensor *tensor = &file->tensors[index];
    return hash_range(self, hex, tensor->data - file->files[0].map, tensor->bytes, weft_packed_cell(tensor, grid), err);
}

static weft_status hash_header(reading *self, char hex[65], const weft_safetensors *file, weft_error *err) {
    int64_t header = 8;
    for (int i = 0; i < 8; i++) header += (int64_t)file->files[0].map[i] << (8 * i); /* validated by open */
    return hash_range(self, hex, 0, header, 0, err);
}

typedef struct collection {
    json_t *files;
    const json_t *roots;
    const char *root;   /* the directory */
    const char *prefix; /* the current directory, relative to the root */
    int64_t grid;
} collection;

/* {"bytes", "header_sha256", "tensors"}. known: the roots of its tensors, {"name": root}; NULL: they are hashed. */
static weft_status make_tensors_entry(reading *self, json_t **out, int64_t grid, json_t *known, weft_error *err) {
    weft_safetensors *file = NULL;
    json_t *tensors = known != NULL ? json_incref(known) : json_object();
    char hex[65];
    weft_status status = weft_safetensors_open(&file, self->path, err);
    for (int32_t i = 0; status == WEFT_OK && known == NULL && i < file->n_tensors; i++) {
        status = hash_tensor(self, hex, file, i, grid, err);
        if (status == WEFT_OK) (void)json_object_set_new(tensors, file->tensors[i].name, json_string(hex));
    }
    if (status == WEFT_OK) status = hash_header(self, hex, file, err);
    if (status == WEFT_OK && json_object_size(tensors) != (size_t)file->n_tensors)
        status = weft_error_set(err, WEFT_E_HOST, "%s: has %d tensors, of which %zu have a hash", self->path,
                                (int)file->n_tensors, json_object_size(tensors));
    if (status == WEFT_OK)
        *out = json_pack("{s:I, s:s, s:O}", "bytes", (json_int_t)self->bytes, "header_sha256", hex, "tensors", tensors);
    json_decref(tensors);
    weft_safetensors_close(file);
    return status;
}

static weft_status add_entry(void *context, const char *found, weft_error *err) {
    const collection *self = context;
    char name[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES], hex[65];
    struct stat about;
    json_t *entry = NULL;
    reading file;
    weft_status status = weft_path_join(name, self->prefix, found, err);
    if (status == WEFT_OK) status = weft_path_join(path, self->root, name, err);
    if (status != WEFT_OK) return status;
    if (lstat(path, &about) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be read: %s", path, strerror(errno));
    if (S_ISDIR(about.st_mode)) {
        collection below = *self;
        below.prefix = name;
        return weft_tree_visit(path, add_entry, &below, err);
    }
    status = reading_open(&file, path, err);
    if (status == WEFT_OK && weft_words_end(path, ".safetensors"))
        status = make_tensors_entry(&file, &entry, self->grid, json_object_get(self->roots, name), err);
    else if (status == WEFT_OK) {
        status = hash_range(&file, hex, 0, file.bytes, 0, err);
        if (status == WEFT_OK) entry = json_pack("{s:I, s:s}", "bytes", (json_int_t)file.bytes, "sha256", hex);
    }
    reading_close(&file);
    if (status == WEFT_OK && json_object_set_new(self->files, name, entry) != 0)
        status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its entry in the manifest", path);
    return status;
}

weft_status weft_manifest_write(const char *directory, uint64_t step, int64_t grid, const json_t *roots,
                                weft_error *err) {
    json_t *manifest = NULL;
    collection all = {json_object(), roots, directory, "", grid};
    char *text = NULL, path[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(path, directory, WEFT_MANIFEST_NAME, err);
    if (status == WEFT_OK) status = weft_tree_visit(directory, add_entry, &all, err);
    manifest = json_pack("{s:i, s:I, s:I, s:o}", "format", FORMAT, "step", (json_int_t)step, "grid", (json_int_t)grid,
                         "files", all.files);
    if (status == WEFT_OK) text = json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (status == WEFT_OK && text == NULL)
        status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its manifest", directory);
    if (status == WEFT_OK) status = weft_file_replace(path, text, strlen(text), err);
    free(text);
    json_decref(manifest);
    return status;
}

static bool is_for_this_rank(shares *ranks, int64_t bytes) {
    int32_t least = 0;
    for (int32_t rank = 1; rank < ranks->world; rank++)
        if (ranks->bytes[rank] < ranks->bytes[least]) least = rank;
    ranks->bytes[least] += bytes;
    return least == ranks->rank;
}

static bool has_hash(const json_t *entry, const char *key, const char *hex) {
    const char *listed = json_string_value(json_object_get(entry, key));
    return listed != NULL && strcmp(listed, hex) == 0;
}

static weft_status verify_tensors(reading *self, const json_t *entry, int64_t grid, shares *ranks, weft_error *err) {
    const json_t *listed = json_object_get(entry, "tensors");
    weft_safetensors *file = NULL;
    char hex[65];
    weft_status status = weft_safetensors_open(&file, self->path, err);
    if (status == WEFT_OK) status = hash_header(self, hex, file, err);
    if (status == WEFT_OK &&
        (!has_hash(entry, "header_sha256", hex) || json_object_size(listed) != (size_t)file->n_tensors))
        status =
            weft_error_set(err, WEFT_E_DATA, "%s: is not the file that was saved: its SHA-256 differs", self->path);
    for (int32_t i = 0; status == WEFT_OK && i < file->n_tensors; i++) {
        if (!is_for_this_rank(ranks, file->tensors[i].bytes)) continue;
        status = hash_tensor(self, hex, file, i, grid, err);
        if (status == WEFT_OK && !has_hash(listed, file->tensors[i].name, hex))
            status = weft_error_set(err, WEFT_E_DATA,
                                    "%s: tensor '%s' is not the one that was saved: its SHA-256 differs", self->path,
                                    file->tensors[i].name);
    }
    weft_safetensors_close(file);
    return status;
}

static weft_status verify_entry(const json_t *entry, const char *path, int64_t grid, shares *ranks, weft_error *err) {
    const json_t *bytes = json_object_get(entry, "bytes");
    struct stat about;
    reading self;
    char hex[65];
    weft_status status = WEFT_OK;
    if (stat(path, &about) != 0)
        return weft_error_set(err, errno == ENOENT ? WEFT_E_DATA : WEFT_E_SYSTEM, "%s: %s", path,
                              errno == ENOENT ? "is missing" : strerror(errno));
    if (!json_is_integer(bytes)) return weft_error_set(err, WEFT_E_DATA, "%s: has no size in the manifest", path);
    if ((json_int_t)about.st_size != json_integer_value(bytes))
        return weft_error_set(err, WEFT_E_DATA, "%s: has %lld bytes, and %lld in the manifest", path,
                              (long long)about.st_size, (long long)json_integer_value(bytes));
    if (ranks == NULL) return WEFT_OK;
    status = reading_open(&self, path, err);
    if (status == WEFT_OK && weft_words_end(path, ".safetensors"))
        status = verify_tensors(&self, entry, grid, ranks, err);
    else if (status == WEFT_OK && is_for_this_rank(ranks, self.bytes)) {
        status = hash_range(&self, hex, 0, self.bytes, 0, err);
        if (status == WEFT_OK && !has_hash(entry, "sha256", hex))
            status = weft_error_set(err, WEFT_E_DATA, "%s: is not the file that was saved: its SHA-256 differs", path);
    }
    reading_close(&self);
    return status;
}

/* ranks: NULL: names and sizes only. */
static weft_status verify_manifest(const char *directory, uint64_t step, shares *ranks, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    const char *name = NULL;
    json_t *manifest = NULL, *entry = NULL, *files = NULL;
    json_int_t format = 0, grid = 0, saved = 0;
    weft_status status = weft_path_join(path, directory, WEFT_MANIFEST_NAME, err);
    if (status == WEFT_OK) status = weft_json_read(&manifest, path, 0, err);
    if (status != WEFT_OK) return status;
    files = json_object_get(manifest, "files");
    format = json_integer_value(json_object_get(manifest, "format"));
    saved = json_integer_value(json_object_get(manifest, "step"));
    grid = json_integer_value(json_object_get(manifest, "grid"));
    if (format != FORMAT)
        status = weft_error_set(err, WEFT_E_DATA, "%s: is of format %lld; this program reads format %d", path,
                                (long long)format, FORMAT);
    else if (!json_is_integer(json_object_get(manifest, "step")) || (uint64_t)saved != step)
        status = weft_error_set(err, WEFT_E_DATA, "%s: is of step %lld, in the directory of step %llu", path,
                                (long long)saved, (unsigned long long)step);
    else if (grid < 1 || grid > GRID_LIMIT || !json_is_object(files))
        status = weft_error_set(err, WEFT_E_DATA, "%s: has no grid from 1 to %d or no list of files", path, GRID_LIMIT);
    json_object_foreach(files, name, entry) {
        if (status != WEFT_OK) break;
        if (name[0] == '/' || name[0] == '\0' || strstr(name, "..") != NULL)
            status = weft_error_set(err, WEFT_E_DATA, "%s: names a file outside, '%s'", path, name);
        else {
            char file[WEFT_PATH_BYTES];
            status = weft_path_join(file, directory, name, err);
            if (status == WEFT_OK) status = verify_entry(entry, file, grid, ranks, err);
        }
    }
    json_decref(manifest);
    return status;
}

weft_status weft_manifest_verify(const char *directory, uint64_t step, const weft_process_group *peers,
                                 weft_error *err) {
    const bool single = weft_process_group_is_single(peers);
    const int32_t world = single ? 1 : peers->world;
    shares all = {single ? 0 : peers->rank, world, weft_alloc(world, sizeof *all.bytes)};
    const weft_status status = verify_manifest(directory, step, &all, err);
    free(all.bytes);
    return weft_process_group_agree(peers, status, err);
}

weft_status weft_manifest_glance(const char *directory, uint64_t step, weft_error *err) {
    return verify_manifest(directory, step, NULL, err);
}
