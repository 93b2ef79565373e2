/* host/run/unknown_files.c: files in a run's directory that no run has written (staging.h). */
#include "run/staging.h"

#include "adapter/origin.h"
#include "adapter/tensors.h"
#include "base/file.h"
#include "base/text.h"
#include "run/checkpoint.h"
#include "run/manifest.h"
#include "model/config_json.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>

typedef bool (*name_test)(const char *name);

static bool begins_with(const char *name, const char *begin) {
    return strncmp(name, begin, strlen(begin)) == 0;
}

/* Of a Hugging Face directory: weights, their index, configuration, and the files of a tokenizer. */
static bool is_of_model(const char *name) {
    static const char *const others[] = {"config.json",
                                         WEFT_ADAPTER_WEIGHTS,
                                         WEFT_ADAPTER_CONFIG,
                                         WEFT_ADAPTER_ORIGIN,
                                         "generation_config.json",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.json",
                                         "vocab.txt",
                                         "merges.txt",
                                         "chat_template.jinja",
                                         "chat_template.json",
                                         "preprocessor_config.json"};
    if (begins_with(name, "model") &&
        (weft_words_end(name, ".safetensors") || weft_words_end(name, ".safetensors.index.json")))
        return true;
    if (begins_with(name, "tokenizer")) return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return true;
    return false;
}

static bool is_of_checkpoint(const char *name) {
    return is_of_model(name) || strcmp(name, "state") == 0 || strcmp(name, "manifest.json") == 0;
}

static bool is_of_state(const char *name) {
    return weft_words_end(name, ".safetensors") || strcmp(name, "run.json") == 0 || strcmp(name, "config.ini") == 0;
}

/* "step-12" and the link "best", and ".step-12.tmp", ".step-12.old" or ".best.tmp" of a save that was cut short. */
static bool is_checkpoint(const char *name) {
    const bool hidden = name[0] == '.';
    const char *at = name + hidden;
    if (strcmp(name, WEFT_BEST_NAME) == 0 || strcmp(name, "." WEFT_BEST_NAME ".tmp") == 0) return true;
    if (!begins_with(at, "step-")) return false;
    at += strlen("step-");
    if (*at < '0' || *at > '9') return false;
    at += strspn(at, "0123456789");
    return hidden ? strcmp(at, ".tmp") == 0 || strcmp(at, ".old") == 0 : *at == '\0';
}

static bool is_of_tensorboard(const char *name) {
    return begins_with(name, "events.out.tfevents.");
}

static bool is_template(const char *name) {
    return weft_words_end(name, ".jinja");
}

/* In a directory named best, where a run has a link. */
static bool is_never(const char *name) {
    (void)name;
    return false;
}

/* ---- searching ---- */

typedef struct search {
    char *foreign;        /* the result, WEFT_PATH_BYTES; "": none yet */
    const char *where;    /* the current directory */
    name_test is_known;   /* true for files of a run */
    const json_t *files;  /* of a checkpoint's manifest; NULL: it has none */
    const char *in_files; /* the directory's name there: "", "state/" */
} search;

static weft_status search_directory(const search *self, const char *where, weft_error *err);

static weft_status search_name(void *context, const char *name, weft_error *err) {
    const search *self = context;
    search within = *self;
    char path[WEFT_PATH_BYTES], in_files[WEFT_PATH_BYTES], listed[WEFT_PATH_BYTES], origin[WEFT_PATH_BYTES];
    const bool holds_adapters = self->is_known == is_of_model || self->is_known == is_of_checkpoint;
    bool is_adapter = false;
    weft_status status = weft_path_join(path, self->where, name, err);
    (void)snprintf(listed, sizeof listed, "%s%s", self->in_files, name);
    if (status != WEFT_OK || self->foreign[0] != '\0' || json_object_get(self->files, listed) != NULL) return status;
    (void)snprintf(in_files, sizeof in_files, "%.255s/", name);
    within.in_files = in_files;
    within.is_known = NULL;
    if (self->is_known == is_checkpoint && begins_with(name, "step-"))
        return is_checkpoint(name) ? weft_unknown_files_find_in_checkpoint(self->foreign, path, err) : WEFT_OK;
    if (self->is_known == is_of_checkpoint && strcmp(name, "state") == 0) within.is_known = is_of_state;
    else if (self->is_known == is_checkpoint && strcmp(name, WEFT_BEST_NAME) == 0) within.is_known = is_never;
    else if (holds_adapters && strcmp(name, WEFT_ADDITIONAL_TEMPLATES) == 0) within.is_known = is_template;
    else if (self->is_known(name)) return WEFT_OK;
    else if (holds_adapters) { /* each of several adapters has a directory with the file of its origin */
        status = weft_path_join(origin, path, WEFT_ADAPTER_ORIGIN, err);
        if (status == WEFT_OK) status = weft_file_exists(&is_adapter, origin, err);
        if (is_adapter) within.is_known = is_of_model;
    }
    if (status == WEFT_OK && within.is_known != NULL) return search_directory(&within, path, err);
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
                                name_test is_known, weft_error *err) {
    const search in = {.foreign = foreign, .is_known = is_known, .in_files = ""};
    char where[WEFT_PATH_BYTES];
    const weft_status status = weft_path_join(where, directory, name, err);
    return status == WEFT_OK && foreign[0] == '\0' ? search_directory(&in, where, err) : status;
}

weft_status weft_unknown_files_find(char foreign[WEFT_PATH_BYTES], const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    foreign[0] = '\0';
    status = search_named(foreign, directory, "model", is_of_model, err);
    if (status == WEFT_OK) status = search_named(foreign, directory, "checkpoints", is_checkpoint, err);
    return status == WEFT_OK ? search_named(foreign, directory, "tensorboard", is_of_tensorboard, err) : status;
}

weft_status weft_unknown_files_find_in_checkpoint(char foreign[WEFT_PATH_BYTES], const char *path, weft_error *err) {
    search in = {.foreign = foreign, .is_known = is_of_checkpoint, .in_files = ""};
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

/* ---- keeping ---- */

typedef struct keeping {
    const char *from, *to;
    name_test is_known;
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
        keeping within = {from, to, strcmp(name, "state") == 0 ? is_of_state : is_of_model};
        return is_directory(from) && is_directory(to) ? weft_tree_visit(from, keep_name, &within, err) : WEFT_OK;
    }
    if (self->is_known(name)) return WEFT_OK;
    if (strcmp(name, WEFT_ADDITIONAL_TEMPLATES) == 0) { /* templates of the model that was replaced */
        char foreign[WEFT_PATH_BYTES] = "";
        status = search_named(foreign, self->from, name, is_template, err);
        if (status != WEFT_OK || foreign[0] == '\0') return status;
    }
    if (rename(from, to) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be renamed to %s: %s", from, to, strerror(errno));
}

weft_status weft_unknown_files_keep(const char *replaced, const char *by, weft_error *err) {
    keeping all = {replaced, by, is_of_checkpoint};
    if (!is_directory(replaced) || !is_directory(by)) return WEFT_OK;
    return weft_tree_visit(replaced, keep_name, &all, err);
}
