/* host/run/manifest.c: writes and verifies manifests; finds checkpoints by them, and removes old ones. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"
#include "model/convert.h"
#include "run/checkpoint.h"
#include "run/staging.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT = 1, GRID_LIMIT = 1 << 17, CHUNK = 1 << 20 };

/* Verification is shared by the ranks: the one with the fewest bytes takes the next tensor or file. */
typedef struct shares {
    int32_t rank, world;
    int64_t *bytes; /* [world] taken so far */
} shares;

static weft_status cannot_open(const char *path, weft_error *err) {
    return weft_error_set(err, errno == ENOENT ? WEFT_E_DATA : WEFT_E_SYSTEM, "%s: %s", path,
                          errno == ENOENT ? "is missing" : strerror(errno));
}

static weft_status hash_whole(char hex[65], const char *path, weft_error *err) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    weft_status status = WEFT_OK;
    if (descriptor < 0) return cannot_open(path, err);
    status = weft_hash_file(hex, descriptor, path, err);
    (void)close(descriptor);
    return status;
}

/* SHA-256 over the SHA-256 of each grid cell of a tensor. */
static weft_status hash_tensor(char hex[65], const weft_safetensors *file, const weft_tensor *tensor, int64_t grid,
                               weft_error *err) {
    const int64_t cell = weft_packed_cell(tensor, grid), step = CHUNK / cell * cell;
    unsigned char *digests = weft_alloc(CHUNK / cell, WEFT_HASH_BYTES);
    char *chunk = weft_alloc(CHUNK, 1);
    weft_hash root = {0};
    weft_status status = weft_hash_start(&root, err);
    for (int64_t at = 0; at < tensor->bytes && status == WEFT_OK; at += step) {
        const int64_t n = weft_smaller(tensor->bytes - at, step);
        status = weft_safetensors_read(file, chunk, tensor, at, n, err);
        if (status == WEFT_OK) status = weft_hash_cells(digests, chunk, n, cell, err);
        if (status == WEFT_OK) weft_hash_put(&root, digests, (size_t)((n + cell - 1) / cell) * WEFT_HASH_BYTES);
    }
    if (status == WEFT_OK) status = weft_hash_finish_hex(&root, hex, err);
    weft_hash_free(&root);
    free(digests);
    free(chunk);
    return status;
}

static weft_status hash_header(char hex[65], const weft_safetensors *file, weft_error *err) {
    size_t header = 8;
    for (int i = 0; i < 8; i++) header += (size_t)file->files[0].map[i] << (8 * i); /* validated by open */
    return weft_hash_text(hex, file->files[0].map, header, err);
}

typedef struct collection {
    json_t *files;
    const json_t *roots;
    const char *root;   /* the directory */
    const char *prefix; /* the current directory, relative to the root */
    int64_t grid;
} collection;

/* {"bytes", "header_sha256", "tensors"}. known: the roots of its tensors, {"name": root}; NULL: they are hashed. */
static weft_status make_tensors_entry(json_t **out, const char *path, int64_t grid, json_t *known, weft_error *err) {
    weft_safetensors *file = NULL;
    json_t *tensors = known != NULL ? json_incref(known) : json_object();
    char hex[65];
    weft_status status = weft_safetensors_open(&file, path, err);
    for (int32_t i = 0; status == WEFT_OK && known == NULL && i < file->n_tensors; i++) {
        status = hash_tensor(hex, file, &file->tensors[i], grid, err);
        if (status == WEFT_OK) (void)json_object_set_new(tensors, file->tensors[i].name, json_string(hex));
    }
    if (status == WEFT_OK) status = hash_header(hex, file, err);
    if (status == WEFT_OK && json_object_size(tensors) != (size_t)file->n_tensors)
        status = weft_error_set(err, WEFT_E_HOST, "%s: has %d tensors, of which %zu have a hash", path,
                                (int)file->n_tensors, json_object_size(tensors));
    if (status == WEFT_OK)
        *out = json_pack("{s:I, s:s, s:O}", "bytes", (json_int_t)file->files[0].bytes, "header_sha256", hex, "tensors",
                         tensors);
    json_decref(tensors);
    weft_safetensors_close(file);
    return status;
}

static weft_status add_entry(void *context, const char *found, weft_error *err) {
    const collection *self = context;
    char name[WEFT_PATH_BYTES], path[WEFT_PATH_BYTES], hex[65];
    struct stat about;
    json_t *entry = NULL;
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
    if (!S_ISREG(about.st_mode)) return weft_error_set(err, WEFT_E_DATA, "%s: is not a file", path);
    if (weft_words_end(path, ".safetensors"))
        status = make_tensors_entry(&entry, path, self->grid, json_object_get(self->roots, name), err);
    else {
        status = hash_whole(hex, path, err);
        if (status == WEFT_OK) entry = json_pack("{s:I, s:s}", "bytes", (json_int_t)about.st_size, "sha256", hex);
    }
    if (status == WEFT_OK && json_object_set_new(self->files, name, entry) != 0)
        status = weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its entry in the manifest", path);
    return status;
}

weft_status weft_manifest_write(const char *directory, uint64_t step, int64_t grid, const json_t *roots,
                                weft_error *err) {
    collection all = {json_object(), roots, directory, "", grid};
    json_t *manifest = json_pack("{s:i, s:I, s:I, s:o}", "format", FORMAT, "step", (json_int_t)step, "grid",
                                 (json_int_t)grid, "files", all.files);
    char path[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(path, directory, WEFT_MANIFEST_NAME, err);
    if (status == WEFT_OK) status = weft_tree_visit(directory, add_entry, &all, err);
    if (status == WEFT_OK) status = weft_file_write_json(path, manifest, JSON_INDENT(1) | JSON_SORT_KEYS, err);
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

static weft_status reject_file(const char *path, weft_error *err) {
    return weft_error_set(err, WEFT_E_DATA, "%s: is not the file that was saved: its SHA-256 differs", path);
}

static weft_status verify_tensors(const json_t *entry, const char *path, int64_t grid, shares *ranks, weft_error *err) {
    const json_t *listed = json_object_get(entry, "tensors");
    weft_safetensors *file = NULL;
    char hex[65];
    weft_status status = weft_safetensors_open(&file, path, err);
    if (status == WEFT_OK) status = hash_header(hex, file, err);
    if (status == WEFT_OK &&
        (!has_hash(entry, "header_sha256", hex) || json_object_size(listed) != (size_t)file->n_tensors))
        status = reject_file(path, err);
    for (int32_t i = 0; status == WEFT_OK && i < file->n_tensors; i++) {
        const weft_tensor *tensor = &file->tensors[i];
        if (!is_for_this_rank(ranks, tensor->bytes)) continue;
        status = hash_tensor(hex, file, tensor, grid, err);
        if (status == WEFT_OK && !has_hash(listed, tensor->name, hex))
            status = weft_error_set(err, WEFT_E_DATA,
                                    "%s: tensor '%s' is not the one that was saved: its SHA-256 differs", path,
                                    tensor->name);
    }
    weft_safetensors_close(file);
    return status;
}

static weft_status verify_entry(const json_t *entry, const char *path, int64_t grid, shares *ranks, weft_error *err) {
    const json_t *bytes = json_object_get(entry, "bytes");
    struct stat about;
    char hex[65];
    weft_status status = WEFT_OK;
    if (stat(path, &about) != 0) return cannot_open(path, err);
    if (!json_is_integer(bytes)) return weft_error_set(err, WEFT_E_DATA, "%s: has no size in the manifest", path);
    if ((json_int_t)about.st_size != json_integer_value(bytes))
        return weft_error_set(err, WEFT_E_DATA, "%s: has %lld bytes, and %lld in the manifest", path,
                              (long long)about.st_size, (long long)json_integer_value(bytes));
    if (ranks == NULL) return WEFT_OK;
    if (!S_ISREG(about.st_mode)) return weft_error_set(err, WEFT_E_DATA, "%s: is not a file", path);
    if (weft_words_end(path, ".safetensors")) return verify_tensors(entry, path, grid, ranks, err);
    if (!is_for_this_rank(ranks, about.st_size)) return WEFT_OK;
    status = hash_whole(hex, path, err);
    return status == WEFT_OK && !has_hash(entry, "sha256", hex) ? reject_file(path, err) : status;
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

/* ---- the checkpoints of a directory ---- */

typedef struct step_list {
    uint64_t *steps; /* of directories called step-N, newest first; the caller frees them */
    size_t n;
} step_list;

/* "directory/step-N"; path: WEFT_PATH_BYTES. */
static weft_status step_path(char *path, const char *directory, uint64_t step, weft_error *err) {
    char name[40];
    (void)snprintf(name, sizeof name, "step-%" PRIu64, step);
    return weft_path_join(path, directory, name, err);
}

/* "step-N" exactly. */
static bool parse_name(const char *name, uint64_t *step) {
    char again[40], *end = NULL;
    if (strncmp(name, "step-", 5) != 0 || !isdigit((unsigned char)name[5])) return false;
    *step = strtoull(name + 5, &end, 10);
    (void)snprintf(again, sizeof again, "step-%" PRIu64, *step);
    return strcmp(again, name) == 0;
}

/* ".step-N.old" or ".step-N.tmp": the part between the dots into name. */
static bool parse_hidden(const char *found, const char *end, char name[64]) {
    const size_t n = strlen(found), m = strlen(end);
    uint64_t step = 0;
    if (n <= m + 1 || n - m > 60 || found[0] != '.' || strcmp(found + n - m, end) != 0) return false;
    (void)snprintf(name, 64, "%.*s", (int)(n - m - 1), found + 1);
    return parse_name(name, &step);
}

static int newest_first(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static weft_status recover_if_moved(void *context, const char *found, weft_error *err) {
    char name[64];
    return parse_hidden(found, ".old", name) ? weft_staging_recover(context, name, err) : WEFT_OK;
}

static weft_status add_if_checkpoint(void *context, const char *found, weft_error *err) {
    step_list *list = context;
    uint64_t step = 0;
    (void)err;
    if (!parse_name(found, &step)) return WEFT_OK;
    list->steps = weft_realloc(list->steps, list->n + 1, sizeof *list->steps);
    list->steps[list->n++] = step;
    return WEFT_OK;
}

/* A missing directory has none. First restores checkpoints that a crash left as .step-N.old. */
static weft_status read_step_list(step_list *out, const char *directory, weft_error *err) {
    step_list list = {0};
    weft_status status = weft_tree_visit(directory, recover_if_moved, (void *)(uintptr_t)directory, err);
    if (status == WEFT_OK) status = weft_tree_visit(directory, add_if_checkpoint, &list, err);
    if (status == WEFT_OK && list.n > 0) qsort(list.steps, list.n, sizeof *list.steps, newest_first);
    if (status == WEFT_OK) *out = list;
    else free(list.steps);
    return status;
}

/* Rank 0's list on all ranks, which may see different directories. */
static weft_status share_list(step_list *list, const char *directory, const weft_process_group *peers,
                              weft_error *err) {
    step_list own = {0};
    void *steps = NULL;
    int64_t n = 0;
    weft_status status = weft_process_group_is_rank_0(peers) ? read_step_list(&own, directory, err) : WEFT_OK;
    *list = own;
    if (weft_process_group_is_single(peers)) return status;
    n = (int64_t)own.n;
    status = weft_process_group_agree(peers, status, err);
    if (status == WEFT_OK) status = weft_share_array(peers, &steps, &n, own.steps, sizeof *own.steps, 0, err);
    free(own.steps);
    *list = (step_list){steps, status == WEFT_OK ? (size_t)n : 0};
    return status;
}

weft_status weft_checkpoint_newest(char path[WEFT_PATH_BYTES], weft_checkpoint_state *state, const char *directory,
                                   const weft_process_group *peers, const weft_host *host, weft_error *err) {
    step_list list = {0};
    char file[WEFT_PATH_BYTES];
    bool found = false;
    weft_status status = share_list(&list, directory, peers, err);
    for (size_t i = 0; i < list.n && status == WEFT_OK && !found; i++) {
        weft_error why = WEFT_ERROR_INIT;
        weft_record record = {0};
        status = step_path(path, directory, list.steps[i], err);
        if (status != WEFT_OK) break;
        status = weft_manifest_verify(path, list.steps[i], peers, &why);
        if (status == WEFT_OK) {
            status = weft_path_join(file, path, "state/run.json", &why);
            if (status == WEFT_OK) status = weft_record_load(&record, file, &why);
            status = weft_process_group_agree(peers, status, &why);
            if (status == WEFT_OK) *state = record.state;
            weft_record_clear(&record);
        }
        if (status == WEFT_E_SYSTEM) { /* not readable is not broken */
            (void)weft_error_set(err, status, "%s", why.text);
            break;
        }
        found = status == WEFT_OK;
        status = WEFT_OK;
        if (!found && weft_process_group_is_rank_0(peers))
            weft_log(host, WEFT_LOG_WARN, "%s is skipped: %s", path, why.text);
    }
    if (status == WEFT_OK && !found && list.n == 0)
        status = weft_error_set(err, WEFT_E_USER,
                                "%s contains no checkpoint to resume from. Fix: start again with --overwrite",
                                directory);
    else if (status == WEFT_OK && !found)
        status =
            weft_error_set(err, WEFT_E_USER,
                           "%s contains no complete checkpoint: all %zu are broken, see above. Fix: start again with "
                           "--overwrite",
                           directory, list.n);
    free(list.steps);
    return weft_process_group_agree(peers, status, err);
}

static weft_status remove_temporary(void *context, const char *found, weft_error *err) {
    char name[64], path[WEFT_PATH_BYTES], final[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    if (!parse_hidden(found, ".tmp", name)) return WEFT_OK;
    status = weft_path_join(path, context, found, err);
    if (status == WEFT_OK) status = weft_path_join(final, context, name, err);
    if (status == WEFT_OK) status = weft_unknown_files_keep(path, final, err);
    return status == WEFT_OK ? weft_tree_remove(path, err) : status;
}

/* Renames it first, so a partly removed checkpoint is never used. One with foreign files is kept, with a warning. */
static weft_status remove_checkpoint(const char *directory, uint64_t step, const weft_host *host, weft_error *err) {
    char path[WEFT_PATH_BYTES], hidden[WEFT_PATH_BYTES], foreign[WEFT_PATH_BYTES] = "", name[48];
    weft_status status = step_path(path, directory, step, err);
    if (status == WEFT_OK) status = weft_unknown_files_find_in_checkpoint(foreign, path, err);
    if (status == WEFT_OK && foreign[0] != '\0') {
        weft_log(host, WEFT_LOG_WARN, "%s: this old checkpoint is kept, because no run wrote %s. Fix: move that file",
                 path, foreign);
        return WEFT_OK;
    }
    (void)snprintf(name, sizeof name, ".step-%" PRIu64 ".tmp", step);
    if (status == WEFT_OK) status = weft_path_join(hidden, directory, name, err);
    if (status != WEFT_OK) return status;
    if (rename(path, hidden) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be removed: %s", path, strerror(errno));
    return weft_tree_remove(hidden, err);
}

weft_status weft_checkpoint_retain(const char *directory, uint64_t step, int64_t keep, uint64_t best_step,
                                   const weft_host *host, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    int64_t kept = 0;
    step_list list = {0};
    weft_status status = read_step_list(&list, directory, err);
    if (status == WEFT_OK) status = weft_tree_visit(directory, remove_temporary, (void *)(uintptr_t)directory, err);
    for (size_t i = 0; i < list.n && status == WEFT_OK; i++) {
        const uint64_t at = list.steps[i];
        if (at > step) continue;
        if (kept >= keep) {
            if (at != best_step || best_step == 0) status = remove_checkpoint(directory, at, host, err);
            continue;
        }
        status = step_path(path, directory, at, err);
        if (status == WEFT_OK && weft_manifest_glance(path, at, NULL) == WEFT_OK) kept++;
    }
    free(list.steps);
    return status;
}

static weft_status drop_link(const char *path, weft_error *err) {
    if (unlink(path) == 0 || errno == ENOENT) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be removed: %s", path, strerror(errno));
}

weft_status weft_best_point(const char *directory, uint64_t best_step, const weft_host *host, weft_error *err) {
    char path[WEFT_PATH_BYTES], target[WEFT_PATH_BYTES], temporary[WEFT_PATH_BYTES];
    struct stat info;
    bool exists = false;
    weft_status status = weft_path_join(path, directory, WEFT_BEST_NAME, err);
    if (status == WEFT_OK) status = step_path(target, directory, best_step, err);
    if (status == WEFT_OK) status = weft_path_join(temporary, directory, "." WEFT_BEST_NAME ".tmp", err);
    if (status == WEFT_OK) status = weft_file_exists(&exists, target, err);
    if (status != WEFT_OK) return status;
    if (lstat(path, &info) == 0 && !S_ISLNK(info.st_mode)) {
        weft_log(host, WEFT_LOG_WARN, "%s is not a link of this run, so the run does not change it. Fix: move it",
                 path);
        return WEFT_OK;
    }
    if (best_step == 0 || !exists) return drop_link(path, err);
    status = drop_link(temporary, err); /* its rename replaces the link in one step */
    if (status != WEFT_OK) return status;
    if (symlink(strrchr(target, '/') + 1, temporary) == 0 && rename(temporary, path) == 0)
        return weft_directory_sync(directory, err);
    weft_log(host, WEFT_LOG_WARN, "%s cannot be linked to %s: %s", path, target, strerror(errno));
    return WEFT_OK;
}
