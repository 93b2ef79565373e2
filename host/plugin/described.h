/* host/plugin/described.h: what keys a plugin has that nobody has chosen. It is asked in a process of its own
 * (apart.h): an idle section is no reason to run a stranger's code, or to load a second MPI, here. */
#ifndef WEFT_HOST_PLUGIN_DESCRIBED_H
#define WEFT_HOST_PLUGIN_DESCRIBED_H

#include "plugin/plugin.h"

typedef struct weft_described {
    char kind[32], id[64];
    char reason[1024]; /* why it cannot be asked here; "": it was */
    uint32_t flags;    /* of its kind's table */
    uint64_t n_keys;
    weft_key *keys; /* their offsets mean nothing */
    void *answer;   /* holds their texts */
} weft_described;

/* The plugin of that kind and id that a search would find. WEFT_E_USER: there is none, and which one is near. [main] */
weft_status weft_plugin_describe(weft_described **out, const weft_plugins *plugins, const char *kind, const char *id,
                                 weft_error *err);
/* The plugin of that kind and id in a file. */
weft_status weft_plugin_describe_file(weft_described **out, const weft_trust *trust, const char *kind, const char *id,
                                      const char *path, weft_error *err);
void weft_described_free(weft_described *self); /* NULL is fine */

/* One key more, of a table that outlives this. */
weft_status weft_described_add(weft_described *self, const weft_key *key, weft_error *err);

/* Its key of that name, or NULL; one that was removed is none. */
const weft_key *weft_described_key(const weft_described *self, const char *name);

#endif
