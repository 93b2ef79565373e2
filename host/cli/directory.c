/* host/cli/directory.c: see directory.h. */
#include "cli/directory.h"

#include "adapter/tensors.h"
#include "base/file.h"
#include "cli/learned.h"
#include "config/nearest.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool weft_is_directory(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* A file that cannot be examined counts as present: its reader then reports the error. */
static bool directory_has(const char *path, const char *name) {
    char *whole = NULL;
    bool is_there = asprintf(&whole, "%s/%s", path, name) >= 0;
    if (!is_there) return false;
    is_there = weft_file_exists(&is_there, whole, NULL) != WEFT_OK || is_there;
    free(whole);
    return is_there;
}

/* Fails if a file may exist and cannot be examined: that does not count as missing. */
static weft_status check_readable(const char *path, const char *name, weft_error *err) {
    char *whole = NULL;
    weft_status status = WEFT_OK;
    if (asprintf(&whole, "%s/%s", path, name) < 0) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a path");
    if (access(whole, R_OK) != 0 && errno != ENOENT)
        status = weft_error_set(err, WEFT_E_USER, "%s: cannot be read: %s", whole, strerror(errno));
    free(whole);
    return status;
}

static weft_status no_memory(weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the arguments");
}

/* Adds key=value, or key=value/rest if rest is set. */
static weft_status say(weft_directory *self, const char *key, const char *value, const char *rest, weft_error *err) {
    char *text = NULL;
    if (asprintf(&text, "%s=%s%s%s", key, value, *rest != '\0' ? "/" : "", rest) < 0) return no_memory(err);
    self->says[self->n++] = text;
    return WEFT_OK;
}

/* Reads a run's configuration, with the trained result in place of the initial model. */
static weft_status read_run(weft_directory *out, const char *path, weft_error *err) {
    const bool adapted = directory_has(path, "model/" WEFT_ADAPTER_CONFIG);
    const bool whole = directory_has(path, "model/config.json");
    if (!whole && !adapted)
        return weft_error_set(err, WEFT_E_USER,
                              "%s is a run that has not come to its end: there is no model/ in it yet. Give one of its "
                              "checkpoints, %s/checkpoints/step-N",
                              path, path);
    if (asprintf(&out->ini, "%s/config.ini", path) < 0) {
        out->ini = NULL;
        return no_memory(err);
    }
    if (adapted && say(out, "adapter.from", path, "model", err) != WEFT_OK) return WEFT_E_MEMORY;
    if (!whole) return WEFT_OK; /* its base is unchanged */
    if (say(out, "model.start", "weights", "", err) != WEFT_OK) return WEFT_E_MEMORY;
    if (say(out, "tokenizer.add", "", "", err) != WEFT_OK) return WEFT_E_MEMORY; /* its tokenizer contains them */
    /* The saved tokenizer contains its template, end and added tokens. */
    if (directory_has(path, "model/tokenizer.json") && say(out, "tokenizer.path", path, "model", err) != WEFT_OK)
        return WEFT_E_MEMORY;
    return say(out, "model.path", path, "model", err);
}

/* Reads an adapter's directory, of a run or in PEFT's format. */
static weft_status read_adapter(weft_directory *out, const char *path, weft_error *err) {
    weft_learned learned;
    bool found = false;
    weft_status status = weft_learned_read(&learned, &found, path, err);
    if (status == WEFT_OK) status = say(out, "model.path", learned.base, "", err);
    if (status == WEFT_OK) status = say(out, "adapter.from", learned.adapter, "", err);
    if (status == WEFT_OK && learned.tokens != NULL) status = say(out, "tokenizer.add", learned.tokens, "", err);
    if (status == WEFT_OK && learned.pad != NULL) status = say(out, "tokenizer.pad", "add", "", err);
    if (status == WEFT_OK && learned.pad != NULL) status = say(out, "tokenizer.pad_token", learned.pad, "", err);
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
    if (directory_has(path, "config.ini")) return read_run(out, path, err);
    if (directory_has(path, WEFT_ADAPTER_CONFIG)) status = read_adapter(out, path, err);
    else if (directory_has(path, "config.json")) status = say(out, "model.path", path, "", err);
    else
        status = weft_error_set(err, WEFT_E_USER,
                                "%s is neither a model's directory, which has a config.json, nor a run's, which has a "
                                "config.ini",
                                path);
    return status == WEFT_OK && !has_length ? say(out, "train.epochs", "1", "", err) : status;
}

/* Formats "; did you mean runs/one?" if the path's directory contains a similar name; else "". */
static void name_nearest(char *out, size_t size, const char *path) {
    const char *slash = strrchr(path, '/');
    const int n = slash == NULL ? 0 : (int)(slash + 1 - path);
    weft_nearest near = {path + n, "", 0};
    char *home = n == 0 ? strdup("./") : strndup(path, (size_t)n);
    DIR *directory = home != NULL ? opendir(home) : NULL;
    const struct dirent *entry = NULL;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.') weft_nearest_offer(&near, entry->d_name, strlen(entry->d_name));
    if (*near.best == '\0') out[0] = '\0';
    else (void)snprintf(out, size, "; did you mean %.*s%s?", n > 200 ? 200 : n, path, near.best);
    if (directory != NULL) (void)closedir(directory);
    free(home);
}

static weft_status judge_missing(const char *path, const char *command, bool takes_directory, weft_error *err) {
    char near[300];
    name_nearest(near, sizeof near, path);
    if (near[0] == '\0')
        (void)snprintf(near, sizeof near, "; weft %s takes an INI file%s", command,
                       takes_directory ? ", a model's directory or a run's, [run] out" : ", which weft init writes");
    return weft_error_set(err, WEFT_E_USER, "%s: cannot be opened: %s%s", path, strerror(ENOENT), near);
}

weft_status weft_directory_judge(const char *path, const char *command, bool takes_directory, weft_error *err) {
    const bool trains = strcmp(command, "train") == 0;
    if (access(path, F_OK) != 0 && errno == ENOENT) return judge_missing(path, command, takes_directory, err);
    if (!weft_is_directory(path)) return WEFT_OK;
    if (directory_has(path, "config.ini"))
        return weft_error_set(err, WEFT_E_USER,
                              "%s is the directory of a run, and weft %s takes an INI file: %s/config.ini%s", path,
                              command, path, trains ? ", with --resume to go on" : "");
    if (directory_has(path, "config.json"))
        return weft_error_set(err, WEFT_E_USER,
                              "%s is the directory of a model, and weft %s takes an INI file: weft init %s "
                              "DATA writes one",
                              path, command, path);
    return weft_error_set(err, WEFT_E_USER, "%s is a directory, and weft %s takes an INI file", path, command);
}

void weft_directory_clear(weft_directory *self) {
    free(self->ini);
    for (size_t i = 0; i < self->n; i++) free(self->says[i]);
    memset(self, 0, sizeof *self);
}
