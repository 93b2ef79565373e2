/* host/run/staging.c: see staging.h. */
#include "run/staging.h"

#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/units.h"
#include "model/config_json.h"
#include "run/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

void weft_staging_forget(weft_staging *self) {
    free(self->parent);
    free(self->final);
    free(self->path);
    free(self->old);
    memset(self, 0, sizeof *self);
}

void weft_staging_name(weft_staging *self, const char *parent, const char *name) {
    self->parent = weft_strdup(parent);
    self->final = weft_text_of("%s/%s", parent, name);
    self->path = weft_text_of("%s/.%s.tmp", parent, name);
    self->old = weft_text_of("%s/.%s.old", parent, name);
}

/* S_IFDIR, ...; 0: there is nothing. */
static mode_t type_of(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0 ? about.st_mode & S_IFMT : 0;
}

static weft_status cannot_move(const char *from, const char *to, weft_error *err) {
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be renamed to %s: %s", from, to, strerror(errno));
}

static weft_status recover_old(const weft_staging *self, weft_error *err) {
    if (type_of(self->old) == 0) return WEFT_OK;
    if (type_of(self->final) != 0) {
        const weft_status status = weft_unknown_files_keep(self->old, self->final, err);
        return status == WEFT_OK ? weft_tree_remove(self->old, err) : status;
    }
    if (rename(self->old, self->final) != 0) return cannot_move(self->old, self->final, err);
    return weft_directory_sync(self->parent, err);
}

weft_status weft_staging_recover(const char *parent, const char *name, weft_error *err) {
    weft_staging names;
    weft_status status = WEFT_OK;
    weft_staging_name(&names, parent, name);
    status = recover_old(&names, err);
    weft_staging_forget(&names);
    return status;
}

weft_status weft_staging_begin(weft_staging *self, const char *parent, const char *name, weft_error *err) {
    weft_status status = weft_tree_make(parent, err);
    weft_staging_name(self, parent, name);
    if (status == WEFT_OK) status = recover_old(self, err);
    if (status == WEFT_OK) status = weft_unknown_files_keep(self->path, self->final, err);
    if (status == WEFT_OK) status = weft_tree_remove(self->path, err);
    if (status == WEFT_OK && mkdir(self->path, 0777) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "the directory %s cannot be made: %s", self->path, strerror(errno));
    if (status != WEFT_OK) weft_staging_forget(self);
    return status;
}

/* On file systems that cannot exchange names only .name.old exists between the two moves. */
static weft_status take_name(const weft_staging *self, weft_error *err) {
    const bool replaces = type_of(self->final) != 0;
    if (replaces && renameat2(AT_FDCWD, self->path, AT_FDCWD, self->final, RENAME_EXCHANGE) == 0) return WEFT_OK;
    if (replaces && errno != EINVAL && errno != ENOSYS) return cannot_move(self->path, self->final, err);
    if (replaces && rename(self->final, self->old) != 0) return cannot_move(self->final, self->old, err);
    if (rename(self->path, self->final) == 0) return WEFT_OK;
    (void)cannot_move(self->path, self->final, err);
    if (replaces) (void)rename(self->old, self->final);
    return WEFT_E_SYSTEM;
}

static weft_status drop_replaced(const weft_staging *self, const char *path, weft_error *err) {
    const weft_status status = weft_unknown_files_keep(path, self->final, err);
    if (status == WEFT_OK) (void)weft_tree_remove(path, NULL);
    return status;
}

weft_status weft_staging_commit(weft_staging *self, weft_error *err) {
    weft_status status = weft_directory_sync(self->path, err);
    if (status == WEFT_OK) status = take_name(self, err);
    if (status != WEFT_OK) {
        weft_staging_cancel(self);
        return status;
    }
    status = weft_directory_sync(self->parent, err);
    /* The replaced directory has one of these two names now. It is removed once its successor is synced and has its
     * foreign files; a failure to remove it is reported by the next save or weft_checkpoint_retain. */
    if (status == WEFT_OK) status = drop_replaced(self, self->path, err);
    if (status == WEFT_OK) status = drop_replaced(self, self->old, err);
    weft_staging_forget(self);
    return status;
}

void weft_staging_cancel(weft_staging *self) {
    if (self->path != NULL) (void)weft_tree_remove(self->path, NULL);
    weft_staging_forget(self);
}

weft_status weft_space_check(const char *directory, const char *purpose, int64_t bytes, weft_error *err) {
    struct statvfs about;
    char needed[WEFT_UNIT_SIZE], there[WEFT_UNIT_SIZE];
    uint64_t room = 0;
    if (statvfs(directory, &about) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s: its free space cannot be determined: %s", directory,
                              strerror(errno));
    room = (uint64_t)about.f_bavail * (uint64_t)about.f_frsize;
    if (about.f_blocks == 0 || (uint64_t)bytes <= room) return WEFT_OK; /* some file systems report 0 */
    return weft_error_set(err, WEFT_E_SYSTEM,
                          "%s: %s needs %s and %s are free. Fix: free some space, lower [checkpoint] keep, or choose "
                          "another [run] out",
                          directory, purpose, weft_unit_bytes(needed, bytes), weft_unit_bytes(there, (int64_t)room));
}

/* ---- files that no run has written ---- */

/* Patterns of the names of a run's files, by directory. of_model: a Hugging Face directory with weights, their index,
 * configuration, and the files of a tokenizer. of_checkpoints: also what a save that was cut short leaves. */
static const char *const of_checkpoint[] = {"state",
                                            "manifest.json",
                                            "config.json",
                                            WEFT_ADAPTER_WEIGHTS,
                                            WEFT_ADAPTER_CONFIG,
                                            WEFT_ADAPTER_ORIGIN,
                                            "model*.safetensors?(.index.json)",
                                            "tokenizer*",
                                            "@(generation|preprocessor)_config.json",
                                            "@(special_tokens_map|added_tokens|vocab).json",
                                            "@(vocab|merges).txt",
                                            "chat_template.@(jinja|json)",
                                            NULL};
static const char *const *const of_model = of_checkpoint + 2;
static const char *const of_state[] = {"*.safetensors", "run.json", "config.ini", NULL};
static const char *const of_checkpoints[] = {WEFT_BEST_NAME, "." WEFT_BEST_NAME ".tmp", "step-+([0-9])",
                                             ".step-+([0-9]).@(tmp|old)", NULL};
static const char *const of_tensorboard[] = {"events.out.tfevents.*", NULL};
static const char *const of_templates[] = {"*.jinja", NULL};
static const char *const of_nothing[] = {NULL};

static bool is_known(const char *const *patterns, const char *name) {
    for (; *patterns != NULL; patterns++)
        if (fnmatch(*patterns, name, FNM_EXTMATCH) == 0) return true;
    return false;
}

typedef struct search {
    char *foreign;            /* the result, WEFT_PATH_BYTES; "": none yet */
    const char *where;        /* the current directory */
    const char *const *known; /* patterns of its files */
    const json_t *files;      /* of a checkpoint's manifest; NULL: it has none */
    const char *in_files;     /* the directory's name there: "", "state/" */
} search;

static weft_status search_directory(const search *self, const char *where, weft_error *err);

static weft_status search_name(void *context, const char *name, weft_error *err) {
    const search *self = context;
    search within = *self;
    char path[WEFT_PATH_BYTES], in_files[WEFT_PATH_BYTES], listed[WEFT_PATH_BYTES], origin[WEFT_PATH_BYTES];
    const bool holds_adapters = self->known == of_model || self->known == of_checkpoint;
    bool is_adapter = false;
    weft_status status = weft_path_join(path, self->where, name, err);
    (void)snprintf(listed, sizeof listed, "%s%s", self->in_files, name);
    if (status != WEFT_OK || self->foreign[0] != '\0' || json_object_get(self->files, listed) != NULL) return status;
    (void)snprintf(in_files, sizeof in_files, "%.255s/", name);
    within.in_files = in_files;
    within.known = NULL;
    if (self->known == of_checkpoints && strncmp(name, "step-", 5) == 0)
        return is_known(self->known, name) ? weft_unknown_files_find_in_checkpoint(self->foreign, path, err) : WEFT_OK;
    if (self->known == of_checkpoint && strcmp(name, "state") == 0) within.known = of_state;
    else if (self->known == of_checkpoints && strcmp(name, WEFT_BEST_NAME) == 0)
        within.known = of_nothing; /* a directory where a run has a link */
    else if (holds_adapters && strcmp(name, WEFT_ADDITIONAL_TEMPLATES) == 0) within.known = of_templates;
    else if (is_known(self->known, name)) return WEFT_OK;
    else if (holds_adapters) { /* each of several adapters has a directory with the file of its origin */
        status = weft_path_join(origin, path, WEFT_ADAPTER_ORIGIN, err);
        if (status == WEFT_OK) status = weft_file_exists(&is_adapter, origin, err);
        if (is_adapter) within.known = of_model;
    }
    if (status == WEFT_OK && within.known != NULL) return search_directory(&within, path, err);
    if (status == WEFT_OK) memcpy(self->foreign, path, sizeof path);
    return status;
}

/* A link is not followed: only the link itself would be removed. */
static weft_status search_directory(const search *self, const char *where, weft_error *err) {
    search here = *self;
    struct stat about;
    here.where = where;
    if (lstat(where, &about) != 0) {
        if (errno == ENOENT) return WEFT_OK;
        return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be examined: %s", where, strerror(errno));
    }
    return S_ISDIR(about.st_mode) ? weft_tree_visit(where, search_name, &here, err) : WEFT_OK;
}

static weft_status search_named(char foreign[WEFT_PATH_BYTES], const char *directory, const char *name,
                                const char *const *known, weft_error *err) {
    const search in = {.foreign = foreign, .known = known, .in_files = ""};
    char where[WEFT_PATH_BYTES];
    const weft_status status = weft_path_join(where, directory, name, err);
    return status == WEFT_OK && foreign[0] == '\0' ? search_directory(&in, where, err) : status;
}

weft_status weft_unknown_files_find(char foreign[WEFT_PATH_BYTES], const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    foreign[0] = '\0';
    status = search_named(foreign, directory, "model", of_model, err);
    if (status == WEFT_OK) status = search_named(foreign, directory, "checkpoints", of_checkpoints, err);
    return status == WEFT_OK ? search_named(foreign, directory, "tensorboard", of_tensorboard, err) : status;
}

weft_status weft_unknown_files_find_in_checkpoint(char foreign[WEFT_PATH_BYTES], const char *path, weft_error *err) {
    search in = {.foreign = foreign, .known = of_checkpoint, .in_files = ""};
    char manifest_path[WEFT_PATH_BYTES];
    json_t *manifest = NULL;
    weft_status status = weft_path_join(manifest_path, path, WEFT_MANIFEST_NAME, err);
    if (status != WEFT_OK) return status;
    foreign[0] = '\0';
    (void)weft_json_read(&manifest, manifest_path, 0, NULL); /* (optional) */
    in.files = json_object_get(manifest, "files");
    status = search_directory(&in, path, err);
    json_decref(manifest);
    return status;
}

typedef struct keeping {
    const char *from, *to;
    const char *const *known;
} keeping;

static weft_status keep_name(void *context, const char *name, weft_error *err) {
    const keeping *self = context;
    char from[WEFT_PATH_BYTES], to[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(from, self->from, name, err);
    if (status == WEFT_OK) status = weft_path_join(to, self->to, name, err);
    if (status != WEFT_OK) return status;
    if (type_of(to) != 0) {
        keeping within = {from, to, strcmp(name, "state") == 0 ? of_state : of_model};
        const bool are_directories = type_of(from) == S_IFDIR && type_of(to) == S_IFDIR;
        return are_directories ? weft_tree_visit(from, keep_name, &within, err) : WEFT_OK;
    }
    if (is_known(self->known, name)) return WEFT_OK;
    if (strcmp(name, WEFT_ADDITIONAL_TEMPLATES) == 0) { /* templates of the model that was replaced */
        char foreign[WEFT_PATH_BYTES] = "";
        status = search_named(foreign, self->from, name, of_templates, err);
        if (status != WEFT_OK || foreign[0] == '\0') return status;
    }
    return rename(from, to) == 0 ? WEFT_OK : cannot_move(from, to, err);
}

weft_status weft_unknown_files_keep(const char *replaced, const char *by, weft_error *err) {
    keeping all = {replaced, by, of_checkpoint};
    if (type_of(replaced) != S_IFDIR || type_of(by) != S_IFDIR) return WEFT_OK;
    return weft_tree_visit(replaced, keep_name, &all, err);
}
