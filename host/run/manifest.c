/* host/run/manifest.c: see manifest.h. The entries of single files are entry.c's. */
#include "run/manifest.h"

#include "base/file.h"
#include "base/join.h"
#include "base/text.h"
#include "base/tree.h"
#include "run/entry.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { FORMAT = 1, GRID_LIMIT = 1 << 17 };

static weft_status no_memory_for_manifest(const char *directory, weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "%s: no memory for its manifest", directory);
}

/* ---- writing ---- */

/* What goes into a manifest. */
typedef struct collection {
    json_t *files;
    const json_t *roots;
    const char *root; /* the directory */
    int64_t grid;
} collection;

static weft_status add_files_below(const collection *self, const char *prefix, weft_error *err);

/* name: of the file from the root on. */
static weft_status add_entry(const collection *self, const char *name, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    struct stat about;
    json_t *entry = NULL;
    weft_status status = weft_path_join(path, self->root, name, err);
    if (status != WEFT_OK) return status;
    if (lstat(path, &about) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be read: %s", path, strerror(errno));
    if (S_ISDIR(about.st_mode)) return add_files_below(self, name, err);
    status = weft_entry_make(&entry, path, self->grid, json_object_get(self->roots, name), err);
    if (status == WEFT_OK && json_object_set_new(self->files, name, entry) != 0)
        status = no_memory_for_manifest(self->root, err);
    return status;
}

/* A directory whose files are added. */
typedef struct below {
    const collection *all;
    const char *prefix; /* its name from the root on; "" is the root itself */
} below;

static weft_status add_name_below(void *context, const char *found, weft_error *err) {
    const below *self = context;
    char name[WEFT_PATH_BYTES];
    const weft_status status = weft_path_join(name, self->prefix, found, err);
    return status == WEFT_OK ? add_entry(self->all, name, err) : status;
}

static weft_status add_files_below(const collection *self, const char *prefix, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    below in = {self, prefix};
    const weft_status status = weft_path_join(path, self->root, prefix, err);
    return status == WEFT_OK ? weft_tree_visit(path, add_name_below, &in, err) : status;
}

weft_status weft_manifest_write(const char *directory, uint64_t step, int64_t grid, const json_t *roots,
                                weft_error *err) {
    json_t *files = json_object(), *manifest = NULL;
    const collection all = {files, roots, directory, grid};
    char *text = NULL, path[WEFT_PATH_BYTES];
    weft_status status = files == NULL ? no_memory_for_manifest(directory, err) : WEFT_OK;
    if (status == WEFT_OK) status = weft_path_join(path, directory, WEFT_MANIFEST_NAME, err);
    if (status == WEFT_OK) status = add_files_below(&all, "", err);
    manifest = json_pack("{s:i, s:I, s:I, s:O}", "format", FORMAT, "step", (json_int_t)step, "grid", (json_int_t)grid,
                         "files", files);
    if (status == WEFT_OK && manifest != NULL) text = json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (status == WEFT_OK && text == NULL) status = no_memory_for_manifest(directory, err);
    if (status == WEFT_OK) status = weft_file_replace(path, text, strlen(text), err);
    free(text);
    json_decref(manifest);
    json_decref(files);
    return status;
}

/* ---- verifying ---- */

/* A name in or below the directory, and nothing that leads elsewhere. */
static bool is_name_good(const char *name) {
    return name[0] != '/' && name[0] != '\0' && strstr(name, "..") == NULL;
}

static weft_status check_head(const json_t *manifest, uint64_t step, int64_t *grid, const char *path, weft_error *err) {
    const json_int_t format = json_integer_value(json_object_get(manifest, "format"));
    const json_t *said = json_object_get(manifest, "step");
    if (format != FORMAT)
        return weft_error_set(err, WEFT_E_DATA, "%s: is of format %lld; this program reads format %d", path,
                              (long long)format, FORMAT);
    if (!json_is_integer(said) || (uint64_t)json_integer_value(said) != step)
        return weft_error_set(err, WEFT_E_DATA, "%s: is of step %lld and lies in the directory of step %llu", path,
                              (long long)json_integer_value(said), (unsigned long long)step);
    *grid = json_integer_value(json_object_get(manifest, "grid"));
    if (*grid < 1 || *grid > GRID_LIMIT || !json_is_object(json_object_get(manifest, "files")))
        return weft_error_set(err, WEFT_E_DATA, "%s: has no grid from 1 to %d or no list of files", path, GRID_LIMIT);
    return WEFT_OK;
}

/* shares: NULL: names and sizes alone. */
static weft_status verify_manifest(const char *directory, uint64_t step, weft_shares *shares, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    const char *name = NULL;
    int64_t grid = 0;
    json_t *manifest = NULL, *entry = NULL;
    weft_status status = weft_path_join(path, directory, WEFT_MANIFEST_NAME, err);
    if (status == WEFT_OK) status = weft_json_read(&manifest, path, 0, err);
    if (status == WEFT_OK) status = check_head(manifest, step, &grid, path, err);
    json_object_foreach(json_object_get(manifest, "files"), name, entry) {
        if (status != WEFT_OK) break;
        if (!is_name_good(name)) {
            status = weft_error_set(err, WEFT_E_DATA, "%s/%s: names a file outside, '%s'", directory,
                                    WEFT_MANIFEST_NAME, name);
            break;
        }
        status = weft_path_join(path, directory, name, err);
        if (status == WEFT_OK) status = weft_entry_verify(entry, path, grid, shares, err);
    }
    json_decref(manifest);
    return status;
}

weft_status weft_manifest_verify(const char *directory, uint64_t step, const weft_process_group *peers,
                                 weft_error *err) {
    const int32_t world = weft_process_group_is_single(peers) ? 1 : peers->world;
    weft_shares shares = {weft_process_group_is_single(peers) ? 0 : peers->rank, world,
                          calloc((size_t)world, sizeof(int64_t))};
    const weft_status status = shares.bytes == NULL ? no_memory_for_manifest(directory, err)
                                                    : verify_manifest(directory, step, &shares, err);
    free(shares.bytes);
    return weft_process_group_agree(peers, status, err);
}

weft_status weft_manifest_glance(const char *directory, uint64_t step, weft_error *err) {
    return verify_manifest(directory, step, NULL, err);
}
