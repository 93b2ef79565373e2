/* host/config/path.c: joins and normalizes paths. */
#include "config/path.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Appends one component to out, which is "/a/b" or "". A `..` cancels the last component unless that is a link, which
 * it would not lead back from. */
static void add_part(char *out, const char *part, size_t n) {
    const size_t length = strlen(out);
    char *last = strrchr(out, '/');
    struct stat info;
    if (n == 0 || (n == 1 && part[0] == '.')) return;
    if (n == 2 && memcmp(part, "..", 2) == 0) {
        if (last == NULL) return; /* the root's parent is the root */
        if (strcmp(last, "/..") != 0 && (lstat(out, &info) != 0 || !S_ISLNK(info.st_mode))) {
            *last = '\0';
            return;
        }
    }
    (void)sprintf(out + length, "/%.*s", (int)n, part);
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
