/* host/plugin/apart.h: a plugin file asked what it is in a process of its own, so that one that crashes, hangs or ends
 * the process becomes a sentence, and so that none of its code or of its libraries comes into this one. */
#ifndef WEFT_HOST_PLUGIN_APART_H
#define WEFT_HOST_PLUGIN_APART_H

#include "plugin/pins.h"
#include <jansson.h>

#define WEFT_APART_SECONDS 10

typedef enum weft_apart {
    WEFT_APART_LIST = 0, /* what it is */
    WEFT_APART_KEYS = 1  /* its keys, too */
} weft_apart;

/* An object:
 *   status                              "ok", "failed"; of WEFT_APART_LIST also "unusable": it was loaded and says that
 *                                       what it needs is not here
 *   version, interface, help, sha256    where it could be loaded
 *   table_flags, keys                   ... and WEFT_APART_KEYS asked for them: the `flags` of the kind's table; an
 *                                       array of {name, type, flags, default, range, unit, help} as in weft_key
 *   reason                              a sentence, where status is not "ok"
 * trust: NULL trusts all. seconds: how long it may take. NULL: err says why. [main] */
json_t *weft_plugin_apart(const char *path, const char *kind, const char *id, const weft_trust *trust, weft_apart what,
                          double seconds, weft_error *err);

#endif
