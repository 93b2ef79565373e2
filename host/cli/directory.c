/* host/cli/directory.c: see directory.h. */
#include "cli/directory.h"

#include "adapter/adapter.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "config/nearest.h"
#include "config/settings.h"
#include "program/sections.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that cannot be examined counts as present: its reader then reports the error. */
static bool has_file(const char *directory, const char *name) {
    char path[WEFT_PATH_BYTES];
    bool is_there = false;
    if (weft_path_join(path, directory, name, NULL) != WEFT_OK) return false;
    return weft_file_exists(&is_there, path, NULL) != WEFT_OK || is_there;
}

/* Copies the base's name from adapter_config.json; NULL: missing. */
static weft_status read_base(char **base, const char *adapter, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    json_t *config = NULL;
    const char *name = NULL;
    weft_status status = weft_path_join(path, adapter, WEFT_ADAPTER_CONFIG, err);
    if (status == WEFT_OK) status = weft_json_read(&config, path, 0, err);
    name = json_string_value(json_object_get(config, "base_model_name_or_path"));
    if (name != NULL && name[0] != '\0') *base = weft_strdup(name);
    json_decref(config);
    return status;
}

/* Finds the base. One saved in the adapter's directory is the base that it was trained on. */
static weft_status find_base(weft_learned *self, weft_error *err) {
    char *named = NULL;
    weft_status status = WEFT_OK;
    if (has_file(self->adapter, "config.json")) named = weft_strdup(self->adapter);
    else status = read_base(&named, self->adapter, err);
    if (status != WEFT_OK) return status;
    if (named == NULL)
        return weft_error_set(err, WEFT_E_USER,
                              "%.1000s/" WEFT_ADAPTER_CONFIG ": base_model_name_or_path is missing. Fix: set it to the "
                              "base's directory, or run weft init BASE DATA and set [adapter] from to this directory",
                              self->adapter);
    self->base = realpath(named, NULL);
    if (self->base == NULL || !has_file(self->base, "config.json"))
        status = weft_error_set(
            err, WEFT_E_USER,
            "%.1000s is an adapter of %.500s, which is not a model's directory on this machine. Fix: run "
            "weft init BASE DATA with that directory, and set [adapter] from to the adapter's",
            self->adapter, named);
    free(named);
    return status;
}

/* Reads [model] base from the configuration of the adapter's run, which has all keys. */
static weft_status find_stored(weft_learned *self, const char *run, weft_error *err) {
    weft_settings settings;
    weft_config *config = NULL;
    char path[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(path, run, "config.ini", err);
    if (status == WEFT_OK) status = weft_config_load(&config, path, NULL, 0, err);
    if (status == WEFT_OK) status = weft_settings_load_section(&settings, "model", config, err);
    if (status == WEFT_OK && settings.model.base != WEFT_BASE_AUTO)
        self->stored = weft_strdup(weft_config_shown(config, "model", "base"));
    weft_config_free(config);
    return status;
}

weft_status weft_learned_read(weft_learned *out, bool *found, const char *path, weft_error *err) {
    const bool is_run = has_file(path, "config.ini");
    char inner[WEFT_PATH_BYTES], *had = NULL;
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    (void)snprintf(inner, sizeof inner, "%.*s%s", (int)sizeof inner - 16, path, is_run ? "/model" : "");
    *found = has_file(inner, WEFT_ADAPTER_CONFIG);
    if (!*found) return WEFT_OK;
    out->adapter = realpath(inner, NULL);
    if (out->adapter == NULL) return weft_error_set(err, WEFT_E_USER, "%.1000s: %s", inner, strerror(errno));
    status = find_base(out, err);
    if (status == WEFT_OK && is_run) status = find_stored(out, path, err);
    if (status != WEFT_OK) return status;
    status = weft_token_files_pad(&had, out->base, err);
    if (status == WEFT_OK && had == NULL) status = weft_token_files_pad(&out->pad, out->adapter, err);
    if (status == WEFT_OK) status = weft_token_files_more(&out->tokens, out->base, out->adapter, err);
    free(had);
    return status;
}

void weft_learned_clear(weft_learned *self) {
    free(self->adapter);
    free(self->base);
    free(self->stored);
    free(self->tokens);
    free(self->pad);
    memset(self, 0, sizeof *self);
}

bool weft_is_directory(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Fails if a file may exist and cannot be examined: that does not count as missing. */
static weft_status check_readable(const char *path, const char *name, weft_error *err) {
    char *whole = weft_text_of("%s/%s", path, name);
    weft_status status = WEFT_OK;
    if (access(whole, R_OK) != 0 && errno != ENOENT)
        status = weft_error_set(err, WEFT_E_USER, "%s: cannot be read: %s", whole, strerror(errno));
    free(whole);
    return status;
}

/* Adds an override and takes its text. */
static void add(weft_directory *self, char *text) {
    self->overrides[self->n++] = text;
}

/* Reads a run's configuration, with the trained result in place of the initial model. */
static weft_status read_run(weft_directory *out, const char *path, weft_error *err) {
    const bool adapted = has_file(path, "model/" WEFT_ADAPTER_CONFIG);
    const bool whole = has_file(path, "model/config.json");
    if (!whole && !adapted)
        return weft_error_set(err, WEFT_E_USER,
                              "%s is an unfinished run without model/. Fix: use one of its checkpoints, "
                              "%s/checkpoints/step-N",
                              path, path);
    out->ini = weft_text_of("%s/config.ini", path);
    if (adapted) add(out, weft_text_of("adapter.from=%s/model", path));
    if (!whole) return WEFT_OK; /* its base is unchanged */
    add(out, weft_strdup("model.start=weights"));
    add(out, weft_strdup("tokenizer.add=")); /* its tokenizer contains them */
    /* The saved tokenizer contains its template, end and added tokens. */
    if (has_file(path, "model/tokenizer.json")) add(out, weft_text_of("tokenizer.path=%s/model", path));
    add(out, weft_text_of("model.path=%s/model", path));
    return WEFT_OK;
}

/* Reads an adapter's directory, of a run or in PEFT's format. */
static weft_status read_adapter(weft_directory *out, const char *path, weft_error *err) {
    weft_learned learned;
    bool found = false;
    weft_status status = weft_learned_read(&learned, &found, path, err);
    if (status == WEFT_OK) add(out, weft_text_of("model.path=%s", learned.base));
    if (status == WEFT_OK) add(out, weft_text_of("adapter.from=%s", learned.adapter));
    if (status == WEFT_OK && learned.tokens != NULL) add(out, weft_text_of("tokenizer.add=%s", learned.tokens));
    if (status == WEFT_OK && learned.pad != NULL) add(out, weft_strdup("tokenizer.pad=add"));
    if (status == WEFT_OK && learned.pad != NULL) add(out, weft_text_of("tokenizer.pad_token=%s", learned.pad));
    weft_learned_clear(&learned);
    return status;
}

weft_status weft_directory_read(weft_directory *out, const char *path, bool has_length, weft_error *err) {
    static const char *const files[] = {"config.ini", WEFT_ADAPTER_CONFIG, "config.json"};
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    if (access(path, F_OK) != 0) return weft_error_set(err, WEFT_E_USER, "%s: %s", path, strerror(errno));
    if (!weft_is_directory(path))
        return weft_error_set(err, WEFT_E_USER, "%s is a file, and not the directory of a model or of a run", path);
    for (size_t i = 0; i < sizeof files / sizeof *files && status == WEFT_OK; i++)
        status = check_readable(path, files[i], err);
    if (status != WEFT_OK) return status;
    if (has_file(path, "config.ini")) return read_run(out, path, err);
    if (has_file(path, WEFT_ADAPTER_CONFIG)) status = read_adapter(out, path, err);
    else if (has_file(path, "config.json")) add(out, weft_text_of("model.path=%s", path));
    else
        status = weft_error_set(err, WEFT_E_USER,
                                "%s is neither a model's directory, which has a config.json, nor a run's, which has a "
                                "config.ini",
                                path);
    if (status == WEFT_OK && !has_length) add(out, weft_strdup("train.epochs=1"));
    return status;
}

/* Formats "; did you mean runs/one?" if the path's directory contains a similar name; else "". */
static void name_nearest(char *out, size_t size, const char *path) {
    const char *slash = strrchr(path, '/');
    const int n = slash == NULL ? 0 : (int)(slash + 1 - path);
    weft_nearest near = {path + n, "", 0};
    char *home = weft_text_of("%.*s", n == 0 ? 2 : n, n == 0 ? "./" : path);
    DIR *directory = opendir(home);
    const struct dirent *entry = NULL;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.') weft_nearest_offer(&near, entry->d_name, strlen(entry->d_name));
    if (*near.best == '\0') out[0] = '\0';
    else (void)snprintf(out, size, "; did you mean %.*s%s?", n > 200 ? 200 : n, path, near.best);
    if (directory != NULL) (void)closedir(directory);
    free(home);
}

weft_status weft_directory_check(const char *path, const char *command, bool takes_directory, weft_error *err) {
    const bool trains = strcmp(command, "train") == 0;
    char near[300];
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        name_nearest(near, sizeof near, path);
        if (near[0] == '\0')
            (void)snprintf(near, sizeof near, "; weft %s takes an INI file%s", command,
                           takes_directory ? ", a model's directory or a run's, [run] out"
                                           : ", which weft init writes");
        return weft_error_set(err, WEFT_E_USER, "%s: cannot be opened: %s%s", path, strerror(ENOENT), near);
    }
    if (!weft_is_directory(path)) return WEFT_OK;
    if (has_file(path, "config.ini"))
        return weft_error_set(err, WEFT_E_USER,
                              "%s is the directory of a run, and weft %s takes an INI file: %s/config.ini%s", path,
                              command, path, trains ? ", with --resume to continue" : "");
    if (has_file(path, "config.json"))
        return weft_error_set(err, WEFT_E_USER,
                              "%s is the directory of a model, and weft %s takes an INI file: weft init %s "
                              "DATA writes one",
                              path, command, path);
    return weft_error_set(err, WEFT_E_USER, "%s is a directory, and weft %s takes an INI file", path, command);
}

void weft_directory_clear(weft_directory *self) {
    free(self->ini);
    for (size_t i = 0; i < self->n; i++) free(self->overrides[i]);
    memset(self, 0, sizeof *self);
}
