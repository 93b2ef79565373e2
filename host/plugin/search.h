/* host/plugin/search.h: where plugin files are looked for. Knows directories and file names, opens nothing. */
#ifndef WEFT_HOST_PLUGIN_SEARCH_H
#define WEFT_HOST_PLUGIN_SEARCH_H

#include <weft/base.h>

#define WEFT_SEARCH_DIRECTORIES 64

typedef struct weft_search {
    char *directories[WEFT_SEARCH_DIRECTORIES]; /* in order, each once */
    size_t n;
} weft_search;

/* path: absolute directories separated by colons, or NULL. Then WEFT_PLUGIN_PATH, the user's directory and prefix,
 * those of the installation. Never the working directory: a relative entry is WEFT_E_USER. [main] */
weft_status weft_search_open(weft_search *out, const char *path, weft_error *err);
void weft_search_close(weft_search *self);

/* The first weft-<kind>-<id>.so that exists, into out: 1; 0: there is none. [main] */
int weft_search_find(const weft_search *self, char *out, size_t n, const char *kind, const char *id);

/* The same of what comes with Weft alone. [main] */
int weft_search_builtin(char *out, size_t n, const char *kind, const char *id);

/* WEFT_E_USER: what was not found, the nearest id, the ids that are there, and every path that was tried. [main] */
weft_status weft_search_miss(const weft_search *self, const char *kind, const char *id, weft_error *err);
/* " It is built where ...": how to get a plugin that comes with Weft but needs others' libraries; "" for all others. */
const char *weft_search_built_by(const char *kind, const char *id);

/* Calls visit for each weft-*-*.so of each directory that exists, in search order, names of a directory sorted.
 * WEFT_E_SYSTEM: a directory that exists and cannot be read. [main] */
weft_status weft_search_walk(const weft_search *self, void (*visit)(void *context, const char *path), void *context,
                             weft_error *err);

#endif
