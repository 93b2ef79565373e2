/* host/run/unknown_files.c: files in a run's directory that no run has written (staging.h). */
#include "run/staging.h"

#include "adapter/stack.h"
#include "adapter/tensors.h"
#include "base/file.h"
#include "base/text.h"
#include "run/checkpoint.h"
#include "run/manifest.h"
#include "model/config_json.h"

#include <errno.h>
#include <fnmatch.h>
#include <sys/stat.h>

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

static bool is_directory(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static weft_status keep_name(void *context, const char *name, weft_error *err) {
    const keeping *self = context;
    char from[WEFT_PATH_BYTES], to[WEFT_PATH_BYTES];
    struct stat about;
    weft_status status = weft_path_join(from, self->from, name, err);
    if (status == WEFT_OK) status = weft_path_join(to, self->to, name, err);
    if (status != WEFT_OK) return status;
    if (lstat(to, &about) == 0) {
        keeping within = {from, to, strcmp(name, "state") == 0 ? of_state : of_model};
        return is_directory(from) && is_directory(to) ? weft_tree_visit(from, keep_name, &within, err) : WEFT_OK;
    }
    if (is_known(self->known, name)) return WEFT_OK;
    if (strcmp(name, WEFT_ADDITIONAL_TEMPLATES) == 0) { /* templates of the model that was replaced */
        char foreign[WEFT_PATH_BYTES] = "";
        status = search_named(foreign, self->from, name, of_templates, err);
        if (status != WEFT_OK || foreign[0] == '\0') return status;
    }
    if (rename(from, to) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be renamed to %s: %s", from, to, strerror(errno));
}

weft_status weft_unknown_files_keep(const char *replaced, const char *by, weft_error *err) {
    keeping all = {replaced, by, of_checkpoint};
    if (!is_directory(replaced) || !is_directory(by)) return WEFT_OK;
    return weft_tree_visit(replaced, keep_name, &all, err);
}
