/* host/config/path.c: joins and normalizes paths. */
#include "config/path.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_link(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

/* Returns whether a following `..` cancels the last component of `path`. */
static bool leads_back(const char *path) {
    const char *last = strrchr(path, '/');
    return last != NULL && strcmp(last, "/..") != 0 && !is_link(path);
}

/* Appends one component to out, which is "/a/b" or "". */
static void add_part(char *out, const char *part, size_t n) {
    const size_t length = strlen(out);
    if (n == 0 || (n == 1 && part[0] == '.')) return;
    if (n == 2 && memcmp(part, "..", 2) == 0) {
        if (length == 0) return; /* the root's parent is the root */
        if (leads_back(out)) {
            *strrchr(out, '/') = '\0';
            return;
        }
    }
    out[length] = '/';
    memcpy(out + length + 1, part, n);
    out[length + 1 + n] = '\0';
}

static void add_parts(char *out, const char *path) {
    while (*path != '\0') {
        const size_t n = strcspn(path, "/");
        add_part(out, path, n);
        path += n + (path[n] == '/');
    }
}

char *weft_path_absolute(const char *directory, const char *path) {
    char *out = weft_alloc(strlen(directory) + strlen(path) + 4, 1);
    if (*path == '\0') return out;
    if (*path != '/') add_parts(out, directory);
    add_parts(out, path);
    if (*out == '\0') strcpy(out, "/");
    return out;
}

char *weft_path_home(const char *file) {
    const char *slash = file == NULL ? NULL : strrchr(file, '/');
    char *directory = NULL, *real = NULL;
    if (slash == NULL) return realpath(".", NULL);
    directory = weft_text_of("%.*s", slash == file ? 1 : (int)(slash - file), file);
    real = realpath(directory, NULL);
    free(directory);
    return real;
}
