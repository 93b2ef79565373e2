/* host/config/brought.c: see brought.h. A run writes its config.ini with absolute paths, so a relative path does not
 * originate from the user's own run. */
#include "config/brought.h"

#include "config/number.h"
#include "config/path.h"
#include "config/store.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The checked directories: of the run and of its model. */
typedef struct origin {
    const char *run;
    char model[PATH_MAX]; /* "": unknown */
} origin;

static bool is_inside(const char *path, const char *directory) {
    const size_t n = strlen(directory);
    return n > 0 && strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Checks both the path as written and its link target. */
static const char *directory_of(const origin *from, const char *path) {
    char real[PATH_MAX];
    const bool has_real = realpath(path, real) != NULL;
    if (is_inside(path, from->run) || (has_real && is_inside(real, from->run))) return from->run;
    if (is_inside(path, from->model) || (has_real && is_inside(real, from->model))) return from->model;
    return NULL;
}

static weft_status refuse(const weft_config *self, const weft_item *item, const char *why, const char *directory,
                          weft_error *err) {
    return weft_config_reject(self, item->section, item->key, err,
                              "%s%s: a run's directory brings no plugins of its own, because their code would run "
                              "unasked. If you trust it, name it on the command line: %s.%s=%s",
                              why, directory, item->section, item->key, item->value);
}

static weft_status check_part(const weft_config *self, const origin *from, const weft_item *item, const char *part,
                              weft_error *err) {
    char *path = NULL;
    const char *directory = NULL;
    weft_status status = WEFT_OK;
    if (part[0] != '/') return refuse(self, item, "is relative to ", from->run, err);
    path = weft_path_absolute("/", part);
    if (path == NULL) return weft_config_no_memory(err);
    directory = directory_of(from, path);
    if (directory != NULL) status = refuse(self, item, "lies in ", directory, err);
    free(path);
    return status;
}

/* Checks one item. An id names no file; each element of a list is a path. */
static weft_status check_item(const weft_config *self, const origin *from, const weft_item *item, weft_error *err) {
    const bool is_path = strcmp(item->section, "plugins") == 0 && strcmp(item->key, "path") == 0;
    const bool is_file = strcmp(item->key, "plugin") == 0 && strchr(item->value, '/') != NULL;
    const char *rest = *item->value == '\0' ? NULL : item->value, *part = NULL;
    weft_status status = WEFT_OK;
    size_t n = 0;
    if (is_file) return check_part(self, from, item, item->value, err);
    while (is_path && status == WEFT_OK && weft_part_next(&rest, ',', &part, &n)) {
        char *copy = strndup(part, n);
        if (copy == NULL) return weft_config_no_memory(err);
        status = check_part(self, from, item, copy, err);
        free(copy);
    }
    return status;
}

/* Returns true for RUN/config.ini if RUN contains the model that the run made. */
static bool is_of_run(const weft_config *self, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    char *model = NULL;
    struct stat about;
    bool is_there;
    if (strcmp(name, "config.ini") != 0 || self->home == NULL || asprintf(&model, "%s/model", self->home) < 0)
        return false;
    is_there = stat(model, &about) == 0 && S_ISDIR(about.st_mode);
    free(model);
    return is_there;
}

weft_status weft_brought_check(const weft_config *self, const char *path, weft_error *err) {
    origin from = {self->home, ""};
    const weft_item *model = weft_config_item(self, "model", "path");
    char *whole = NULL;
    weft_status status = WEFT_OK;
    if (path == NULL || !is_of_run(self, path)) return WEFT_OK;
    if (model != NULL) whole = weft_path_absolute(model->directory, model->value);
    if (whole != NULL && *whole != '\0' && realpath(whole, from.model) == NULL) from.model[0] = '\0';
    free(whole);
    for (size_t i = 0; i < self->n_items && status == WEFT_OK; i++) {
        const weft_item *item = &self->items[i];
        const bool counts = weft_config_item(self, item->section, item->key) == item;
        if (counts && item->directory == self->home) status = check_item(self, &from, item, err);
    }
    return status;
}
