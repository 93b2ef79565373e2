/* host/plugin/plugin.h: finds plugins, judges their files before any of their code runs, loads and checks them.
 *
 *     weft_plugins *plugins = NULL;
 *     const weft_loaded *loaded = NULL;
 *     weft_plugins_create(&plugins, &options, &err);
 *     weft_plugins_get(plugins, &loaded, "optimizer", "adamw", &err);
 *     const weft_optimizer_plugin *table = weft_loaded_table(loaded, optimizer);
 *
 * A plugin is asked for by kind and id, or by a path (anything with a slash). The file of an id is weft-<kind>-<id>.so,
 * searched in [plugins] path, WEFT_PLUGIN_PATH, the user's directory ($XDG_DATA_HOME or ~/.local/share, weft/plugins)
 * and the install directory; never in the working directory. The first hit decides: if it cannot be loaded, its own
 * error is the answer and the search does not go on.
 *
 * What is loaded stays loaded until the process ends, so every weft_loaded and all that it points to lives as long as
 * the process, whatever happens to the registry. All functions are [main].
 */
#ifndef WEFT_HOST_PLUGIN_PLUGIN_H
#define WEFT_HOST_PLUGIN_PLUGIN_H

#include <weft/plugin.h>

typedef struct weft_plugins weft_plugins; /* search directories, pins, and what was asked for */

typedef struct weft_loaded {
    const weft_plugin *plugin;
    const char *path;   /* canonical and absolute */
    const char *sha256; /* of the file, 64 hexadecimal digits */
    const char *note;   /* the file's weft_plugin_note */
    const char *needed; /* the libraries that it is linked to: "libm.so.6, libc.so.6" */
    uint32_t sdk;       /* SDK whose headers it was built with, major * 1000 + minor */
    uint32_t min_sdk;   /* oldest host that it says it works with */
} weft_loaded;

/* The table of a loaded plugin: weft_loaded_table(loaded, optimizer) is a const weft_optimizer_plugin *. */
#define weft_loaded_table(loaded, kind) ((const weft_##kind##_plugin *)(loaded)->plugin->table)

/* All texts may be NULL. */
typedef struct weft_plugins_options {
    const char *path;     /* [plugins] path: absolute directories, separated by colons */
    const char *pins;     /* [plugins] pin: "optimizer:lion=<64 hex digits>", separated by commas */
    const char *pin_list; /* [plugins] pin_list: a file of hashes */
    int pinned;           /* [plugins] trust = pinned: nothing else is loaded */
} weft_plugins_options;

typedef struct weft_trust weft_trust; /* plugin/pins.h */

/* WEFT_E_USER: a directory that is not absolute, a pin or a list that cannot be read. */
weft_status weft_plugins_create(weft_plugins **out, const weft_plugins_options *options, weft_error *err);
void weft_plugins_destroy(weft_plugins *self);

/* What gives cause for doubt about a file that is loaded is told once in a process (plugin/doubts.h).
 * name: an id, or a path with a slash (relative ones start at the working directory: the configuration makes them
 * absolute first). A second request for the same plugin gives the same answer. */
weft_status weft_plugins_get(weft_plugins *self, const weft_loaded **out, const char *kind, const char *name,
                             weft_error *err);

/* A plugin file of a kind as its note describes it: none of its code has run. */
typedef struct weft_noted {
    char id[64];      /* of its name, weft-<kind>-<id>.so */
    char path[4096];  /* as it was found */
    char launch[512]; /* of the note (weft/comm.h); "": none */
    char launched[512];
    char wraps[64];    /* a communicator that wraps others: the one whose launch and variables these are; "" */
    char reason[1024]; /* why this host cannot take it; "": it can */
} weft_noted;

/* All files of the kind that a search would find, in its order. *out is the caller's to free. */
weft_status weft_plugins_noted(const weft_plugins *self, weft_noted **out, size_t *n, const char *kind,
                               weft_error *err);
/* The file at a path. */
void weft_plugin_noted(const weft_plugins *self, weft_noted *out, const char *id, const char *path);

/* What weft_plugins_get has given so far, in order, each once; NULL past the end. For the checkpoint's manifest. */
const weft_loaded *weft_plugins_at(const weft_plugins *self, size_t i);

/* The directories in search order; NULL past the end. They need not exist. */
const char *weft_plugins_directory(const weft_plugins *self, size_t i);

/* The file that a search for the id finds. WEFT_E_USER: none; the nearest, what there is, where it was looked for. */
weft_status weft_plugins_find(const weft_plugins *self, char *path, size_t size, const char *kind, const char *id,
                              weft_error *err);

/* Which files it takes. */
const weft_trust *weft_plugins_trust(const weft_plugins *self);

/* True for a kind that this host knows. */
int weft_plugin_kind_known(const char *kind);

#endif
