/* host/plugin/doubts.c: see doubts.h. */
#include "plugin/doubts.h"

#include "plugin/search.h"
#include "plugin/services.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* A file that is looked at, and who is told of it. */
typedef struct look {
    const char *path, *kind, *id;
    weft_doubt_fn *take;
    void *context;
} look;

static void tell(const look *at, const char *format, ...) WEFT_PRINTF(2, 3);
static void tell(const look *at, const char *format, ...) {
    char text[2 * PATH_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    at->take(at->context, text);
}

/* Who may write to a directory that has no sticky bit may put another file there. */
static void find_writable(const look *at) {
    char directory[PATH_MAX];
    struct stat is;
    char *slash = NULL;
    if (stat(at->path, &is) == 0 && (is.st_mode & S_IWOTH) != 0)
        tell(at, "can be changed by every user of this machine: chmod o-w it");
    (void)snprintf(directory, sizeof directory, "%s", at->path);
    slash = strrchr(directory, '/');
    if (slash == NULL) return;
    slash[slash == directory] = 0;
    if (stat(directory, &is) == 0 && (is.st_mode & S_IWOTH) != 0 && (is.st_mode & S_ISVTX) == 0)
        tell(at, "can be replaced by every user of this machine, for its directory is open to all: chmod o-w %s",
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

static void find_hidden(const look *at) {
    char path[PATH_MAX];
    struct stat mine, theirs;
    if (!weft_search_builtin(path, sizeof path, at->kind, at->id)) return;
    if (stat(at->path, &mine) != 0 || stat(path, &theirs) != 0) return;
    if (mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino) return;
    if (same_bytes(at->path, path)) return; /* one's own, that was installed from there */
    tell(at, "takes the id of one that is installed, %s, and is used instead of it", path);
}

void weft_doubts_find(const char *path, const weft_preflight *note, const char *kind, const char *id,
                      weft_doubt_fn *take, void *context) {
    const look at = {path, kind, id, take, context};
    find_writable(&at);
    find_hidden(&at);
    if (note->fast_math)
        tell(&at, "was compiled with -ffast-math or a part of it: its sums may come in any order, so that no two "
                  "builds need give the same numbers; build it with the SDK's flags");
}

/* ---- told as warnings ---- */

static void warn(void *context, const char *doubt) {
    const weft_loaded *loaded = context;
    char line[3 * PATH_MAX];
    (void)snprintf(line, sizeof line, "%s:%s (%.1500s) %s", loaded->plugin->kind, loaded->plugin->id, loaded->path,
                   doubt);
    weft_services()->log(weft_services(), WEFT_LOG_WARN, line);
}

void weft_doubts_tell(const weft_plugin_file *file, const weft_loaded *loaded) {
    static const weft_loaded *told[256];
    static size_t n_told;
    weft_loaded of = *loaded;
    for (size_t i = 0; i < n_told; i++)
        if (told[i] == loaded) return;
    if (n_told < sizeof told / sizeof *told) told[n_told++] = loaded;
    weft_doubts_find(loaded->path, &file->note, loaded->plugin->kind, loaded->plugin->id, warn, &of);
}
