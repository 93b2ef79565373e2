/* host/base/tree.c: see tree.h. */
#include "base/tree.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static weft_status make_one(const char *path, weft_error *err) {
    struct stat info;
    if (mkdir(path, 0777) == 0) return WEFT_OK;
    if (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "the directory %s cannot be made: %s", path,
                          errno == EEXIST ? "a file of that name is there" : strerror(errno));
}

weft_status weft_tree_make(const char *path, weft_error *err) {
    weft_status status = WEFT_OK;
    char *part = strdup(path);
    if (part == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the path %s", path);
    for (char *at = part + 1; *at != '\0' && status == WEFT_OK; at++) {
        if (*at != '/') continue;
        *at = '\0';
        status = make_one(part, err);
        *at = '/';
    }
    if (status == WEFT_OK) status = make_one(part, err);
    free(part);
    return status;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where) {
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

weft_status weft_tree_remove(const char *path, weft_error *err) {
    struct stat info;
    if (lstat(path, &info) != 0 && errno == ENOENT) return WEFT_OK;
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return weft_error_set(err, WEFT_E_SYSTEM, "%s cannot be removed: %s", path, strerror(errno));
    return WEFT_OK;
}

static weft_status cannot_list(const char *path, weft_error *err) {
    return weft_error_set(err, WEFT_E_SYSTEM, "%s: the directory cannot be listed: %s", path, strerror(errno));
}

weft_status weft_tree_visit(const char *path, weft_status (*visit)(void *context, const char *name, weft_error *err),
                            void *context, weft_error *err) {
    weft_status status = WEFT_OK;
    const struct dirent *entry = NULL;
    DIR *directory = opendir(path);
    if (directory == NULL && (errno == ENOENT || errno == ENOTDIR)) return WEFT_OK;
    if (directory == NULL) return cannot_list(path, err);
    for (errno = 0; status == WEFT_OK && (entry = readdir(directory)) != NULL; errno = 0)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = visit(context, entry->d_name, err);
    if (status == WEFT_OK && errno != 0) status = cannot_list(path, err);
    (void)closedir(directory);
    return status;
}

typedef struct search {
    const char *beginning;
    bool found;
} search;

static weft_status note_if_found(void *context, const char *name, weft_error *err) {
    search *self = context;
    (void)err;
    self->found = self->found || strncmp(name, self->beginning, strlen(self->beginning)) == 0;
    return WEFT_OK;
}

weft_status weft_tree_has(bool *out, const char *path, const char *beginning, weft_error *err) {
    search self = {beginning, false};
    const weft_status status = weft_tree_visit(path, note_if_found, &self, err);
    *out = self.found;
    return status;
}
