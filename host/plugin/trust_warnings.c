/* host/plugin/trust_warnings.c: see trust_warnings.h. */
#include "plugin/trust_warnings.h"

#include "plugin/search.h"
#include "plugin/services.h"
#include "plugin/writable.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The examined file, and the receiver of its warnings. */
typedef struct look {
    const char *path, *given, *kind, *id;
    weft_trust_warning_fn *take;
    void *context;
} look;

static void tell(const look *at, const char *format, ...) WEFT_PRINTF(2, 3);
static void tell(const look *at, const char *format, ...) {
    char text[WEFT_WRITABLE_TEXT];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    at->take(at->context, text);
}

/* Checks the path as given and its canonical path, which are equal without links. */
static void find_writable(const look *at) {
    char text[WEFT_WRITABLE_TEXT];
    if (weft_writable_by_others(text, at->given) || weft_writable_by_others(text, at->path)) tell(at, "%s", text);
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
    if (same_bytes(at->path, path)) return; /* a copy installed from the built-in file */
    tell(at, "takes the id of one that is installed, %s, and is used instead of it", path);
}

void weft_trust_warnings_find(const char *path, const char *given, const weft_preflight *note, const char *kind,
                              const char *id, weft_trust_warning_fn *take, void *context) {
    const look at = {path, given, kind, id, take, context};
    find_writable(&at);
    find_hidden(&at);
    if (note->fast_math)
        tell(&at, "was compiled with -ffast-math or a part of it: its sums may come in any order, so that no two "
                  "builds need give the same numbers; build it with the SDK's flags");
}

/* ---- output as warnings ---- */

static void warn(void *context, const char *doubt) {
    const weft_loaded *loaded = context;
    char line[4 * PATH_MAX];
    (void)snprintf(line, sizeof line, "%s:%s (%.1500s) %s", loaded->plugin->kind, loaded->plugin->id, loaded->path,
                   doubt);
    weft_services()->log(weft_services(), WEFT_LOG_WARN, line);
}

void weft_trust_warnings_log(const weft_plugin_file *file, const weft_loaded *loaded, const char *given) {
    static const weft_loaded *told[256];
    static size_t n_told;
    weft_loaded of = *loaded;
    for (size_t i = 0; i < n_told; i++)
        if (told[i] == loaded) return;
    if (n_told < sizeof told / sizeof *told) told[n_told++] = loaded;
    weft_trust_warnings_find(loaded->path, given, &file->note, loaded->plugin->kind, loaded->plugin->id, warn, &of);
}
