/* host/plugin/subprocess_probe.h: loads and describes a plugin file in a child process. A plugin that crashes, hangs
 * or exits becomes an error message, and neither its code nor its libraries enter this process. */
#ifndef WEFT_HOST_PLUGIN_SUBPROCESS_PROBE_H
#define WEFT_HOST_PLUGIN_SUBPROCESS_PROBE_H

#include "plugin/plugin.h"
#include <jansson.h>

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
