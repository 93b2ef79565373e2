/* host/plugin/plugin_description.h: describes the keys of a plugin that is not selected. A child process loads the
 * plugin (subprocess_probe.h), because an unused section is no reason to run foreign code, or to load a second MPI,
 * in this process. */
#ifndef WEFT_HOST_PLUGIN_PLUGIN_DESCRIPTION_H
#define WEFT_HOST_PLUGIN_PLUGIN_DESCRIPTION_H

#include "plugin/plugin.h"

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
weft_status weft_plugin_description_add(weft_plugin_description *self, const weft_key *key, weft_error *err);

/* Returns its key of that name, or NULL. A removed key counts as missing. */
const weft_key *weft_plugin_description_key(const weft_plugin_description *self, const char *name);

#endif
