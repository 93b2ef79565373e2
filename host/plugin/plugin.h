/* host/plugin/plugin.h: plugin registry. Finds plugins, validates their files before any of their code runs, loads and
 * checks them.
 *
 *     weft_plugins *plugins = NULL;
 *     const weft_loaded *loaded = NULL;
 *     weft_plugins_create(&plugins, &settings, &err);
 *     weft_plugins_get(plugins, &loaded, "optimizer", "adamw", &err);
 *     const weft_optimizer_plugin *table = weft_loaded_table(loaded, optimizer);
 *
 * A plugin is requested by kind and id, or by a path (any name with a slash). The file of an id is weft-<kind>-<id>.so.
 * The search covers [plugins] path, WEFT_PLUGIN_PATH, the user's directory ($XDG_DATA_HOME or ~/.local/share,
 * weft/plugins) and the install directory; never the working directory. The first hit decides: if it cannot be loaded,
 * the search fails with that error.
 *
 * Plugins stay loaded until the process ends. Every weft_loaded and the data it points to live as long as the process,
 * independent of the registry. All functions are [main]. */
#ifndef WEFT_HOST_PLUGIN_PLUGIN_H
#define WEFT_HOST_PLUGIN_PLUGIN_H

#include "config/settings.h"

#include <jansson.h>
#include <stdbool.h>
#include <weft/plugin.h>

typedef struct weft_plugins weft_plugins; /* search directories and pins */

typedef struct weft_loaded {
    const weft_plugin *plugin;
    const char *path;   /* canonical and absolute */
    const char *sha256; /* of the file, 64 hexadecimal digits */
    const char *note;   /* the file's weft_plugin_note */
    int fast_math;      /* compiled with reordering of sums */
} weft_loaded;

/* The table of a loaded plugin: weft_loaded_table(loaded, optimizer) is a const weft_optimizer_plugin *. */
#define weft_loaded_table(loaded, kind) ((const weft_##kind##_plugin *)(loaded)->plugin->table)

typedef struct weft_trust weft_trust; /* plugin/load.h */

/* Creates a registry. Strings of the settings may be NULL; the pins must be valid. WEFT_E_USER: a directory that is not
 * absolute, or a list that cannot be read. */
weft_status weft_plugins_create(weft_plugins **out, const weft_plugins_settings *settings, weft_error *err);
void weft_plugins_destroy(weft_plugins *self);

/* Loads a plugin. Trust warnings about its file are printed once per process (plugin/load.h). name: an id,
 * or a path with a slash. Relative paths start at the working directory: the configuration makes them absolute
 * first. A second request for the same plugin returns the same object. */
weft_status weft_plugins_get(weft_plugins *self, const weft_loaded **out, const char *kind, const char *name,
                             weft_error *err);

/* A plugin file described by its note, without running its code. */
typedef struct weft_plugin_summary {
    char id[64];      /* of its name, weft-<kind>-<id>.so */
    char path[4096];  /* as found */
    char launch[512]; /* of the note (weft/comm.h); "": missing */
    char launched[512];
    char wraps[64];    /* a communicator that wraps others: the id of the one that owns launch and launched; "" */
    char reason[1024]; /* why this host cannot load it; "": it can */
} weft_plugin_summary;

/* Lists all files of the kind that a search would find, in search order. The caller frees *out. */
weft_status weft_plugins_summarize(const weft_plugins *self, weft_plugin_summary **out, size_t *n, const char *kind,
                                   weft_error *err);
/* Describes the file at a path. */
void weft_plugin_summarize(const weft_plugins *self, weft_plugin_summary *out, const char *id, const char *path);

/* Writes the path of the first weft-<kind>-<id>.so in search order; returns false if there is none. */
bool weft_plugins_has(const weft_plugins *self, char *path, size_t size, const char *kind, const char *id);
/* The same among built-in plugins only. */
bool weft_plugin_builtin(char *path, size_t size, const char *kind, const char *id);
/* As weft_plugins_has. WEFT_E_USER: not found; the message lists the nearest id, all ids, and the searched paths. */
weft_status weft_plugins_find(const weft_plugins *self, char *path, size_t size, const char *kind, const char *id,
                              weft_error *err);
/* Returns " It is built where ...": how to get a built-in plugin that needs external libraries; "" for all others. */
const char *weft_plugin_built_by(const char *kind, const char *id);

typedef struct weft_found {
    char kind[32], id[96];
    char path[4096];
} weft_found;

/* Lists the files weft-<kind>-<id>.so of each directory that exists, in search order, sorted by name within a
 * directory. kind: NULL: all kinds. The caller frees *out. WEFT_E_SYSTEM: a directory exists and cannot be read. */
weft_status weft_plugins_list(const weft_plugins *self, weft_found **out, size_t *n, const char *kind, weft_error *err);

/* Returns directory i of the search; NULL past the end. */
const char *weft_plugins_directory(const weft_plugins *self, size_t i);

/* Returns the interface number of a kind that this host supports; -1: unknown kind. [any-thread] */
int32_t weft_kind_interface(const char *kind);

/* ---- loads and describes a plugin file in a child process. A plugin that crashes, hangs or exits becomes an error
 * message, and neither its code nor its libraries enter this process ---- */

#define WEFT_PROBE_SECONDS 10

/* Loads the file. Returns an object:
 *   status "ok", "failed", "unusable": it was loaded and reports that a requirement is missing
 *   version, interface, help, sha256    if it was loaded
 *   reason                              an error message, if status is not "ok"
 * NULL: no child process. seconds: timeout. [main] */
json_t *weft_plugin_probe(const weft_found *file, double seconds, weft_error *err);

/* The keys of a plugin that is not selected: an unused section is no reason to run foreign code, or to load a second
 * MPI, in this process. */
typedef struct weft_plugin_description {
    char kind[32], id[64];
    char reason[1024]; /* why it cannot be described; "": success */
    uint32_t flags;    /* of its kind's table */
    uint64_t n_keys;
    weft_key *keys; /* their offsets are meaningless */
    void *answer;   /* owns their strings */
} weft_plugin_description;

/* Describes the plugin of that kind and id that a search would find. WEFT_E_USER: not found, with the nearest id.
 * [main] */
weft_status weft_plugin_describe(weft_plugin_description **out, const weft_plugins *plugins, const char *kind,
                                 const char *id, weft_error *err);
/* Describes the plugin of that kind and id in a file. */
weft_status weft_plugin_describe_file(weft_plugin_description **out, const weft_trust *trust, const char *kind,
                                      const char *id, const char *path, weft_error *err);
void weft_plugin_description_free(weft_plugin_description *self); /* NULL is fine */

/* Adds a key, of a table that outlives self. */
void weft_plugin_description_add(weft_plugin_description *self, const weft_key *key);

/* Returns its key of that name, or NULL. A removed key counts as missing. */
const weft_key *weft_plugin_description_key(const weft_plugin_description *self, const char *name);

#endif
