/* host/plugin/doubts.c: see doubts.h. */
#include "plugin/doubts.h"

#include "plugin/search.h"
#include "plugin/services.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void warn(const weft_loaded *loaded, const char *format, ...) WEFT_PRINTF(2, 3);
static void warn(const weft_loaded *loaded, const char *format, ...) {
    char line[2 * PATH_MAX];
    int n = snprintf(line, sizeof line, "%s:%s (%.1500s) ", loaded->plugin->kind, loaded->plugin->id, loaded->path);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    va_end(args);
    weft_services()->log(weft_services(), WEFT_LOG_WARN, line);
}

/* Who may write to a directory that has no sticky bit may put another file there. */
static void tell_writable(const weft_loaded *loaded) {
    char directory[PATH_MAX];
    struct stat at;
    char *slash = NULL;
    if (stat(loaded->path, &at) == 0 && (at.st_mode & S_IWOTH) != 0)
        warn(loaded, "can be changed by every user of this machine: chmod o-w it");
    (void)snprintf(directory, sizeof directory, "%s", loaded->path);
    slash = strrchr(directory, '/');
    if (slash == NULL) return;
    slash[slash == directory] = 0;
    if (stat(directory, &at) == 0 && (at.st_mode & S_IWOTH) != 0 && (at.st_mode & S_ISVTX) == 0)
        warn(loaded, "can be replaced by every user of this machine, for its directory is open to all: chmod o-w %s",
             directory);
}

static bool same_bytes(const char *a, const char *b) {
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    int p = 0, q = 0;
    while (x != NULL && y != NULL && p == q && p != EOF) {
        p = getc(x);
        q = getc(y);
    }
    if (x != NULL) (void)fclose(x);
    if (y != NULL) (void)fclose(y);
    return x != NULL && y != NULL && p == q;
}

static void tell_hidden(const weft_loaded *loaded) {
    char path[PATH_MAX];
    struct stat mine, theirs;
    if (!weft_search_builtin(path, sizeof path, loaded->plugin->kind, loaded->plugin->id)) return;
    if (stat(loaded->path, &mine) != 0 || stat(path, &theirs) != 0) return;
    if (mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino) return;
    if (same_bytes(loaded->path, path)) return; /* one's own, that was installed from there */
    warn(loaded, "takes the id of one that is installed, %s, and is used instead of it", path);
}

static void tell_math(const weft_plugin_file *file, const weft_loaded *loaded) {
    if (!file->note.fast_math) return;
    warn(loaded, "was compiled with -ffast-math or a part of it: its sums may come in any order, so that no two builds "
                 "need give the same numbers; build it with the SDK's flags");
}

void weft_doubts_tell(const weft_plugin_file *file, const weft_loaded *loaded) {
    static const weft_loaded *told[256];
    static size_t n_told;
    for (size_t i = 0; i < n_told; i++)
        if (told[i] == loaded) return;
    if (n_told < sizeof told / sizeof *told) told[n_told++] = loaded;
    tell_writable(loaded);
    tell_hidden(loaded);
    tell_math(file, loaded);
}
