/* host/plugin/search.h: search path of plugin files. Uses directories and file names only, and opens no file. */
#ifndef WEFT_HOST_PLUGIN_SEARCH_H
#define WEFT_HOST_PLUGIN_SEARCH_H

#include <weft/base.h>

#define WEFT_SEARCH_DIRECTORIES 64

typedef struct weft_search {
    char *directories[WEFT_SEARCH_DIRECTORIES]; /* in order, without duplicates */
    size_t n;
} weft_search;

/* Opens the search. path: absolute directories separated by colons, or NULL. WEFT_PLUGIN_PATH, the user's directory,
 * the prefix's and the installation's directories follow. The working directory is never searched: a relative entry is
 * WEFT_E_USER. [main] */
weft_status weft_search_open(weft_search *out, const char *path, weft_error *err);
void weft_search_close(weft_search *self);

/* Writes the path of the first weft-<kind>-<id>.so that exists to out, and returns 1; returns 0 if it is missing.
 * [main] */
int weft_search_find(const weft_search *self, char *out, size_t n, const char *kind, const char *id);

/* Finds built-in plugins only. [main] */
int weft_search_builtin(char *out, size_t n, const char *kind, const char *id);

/* Sets WEFT_E_USER with the requested name, the nearest id, the existing ids, and every path that was tried. [main] */
weft_status weft_search_miss(const weft_search *self, const char *kind, const char *id, weft_error *err);
/* Returns " It is built where ...": how to get a built-in plugin that needs external libraries; "" for all others. */
const char *weft_search_built_by(const char *kind, const char *id);

typedef struct weft_found {
    char kind[32], id[96];
    char path[4096];
} weft_found;

/* Lists the files weft-<kind>-<id>.so of each directory that exists, in search order, sorted by name within a
 * directory. kind: NULL: all kinds. The caller frees *out. WEFT_E_SYSTEM: a directory exists and cannot be read. [main]
 */
weft_status weft_search_list(const weft_search *self, weft_found **out, size_t *n, const char *kind, weft_error *err);

#endif
