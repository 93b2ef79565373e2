/* host/plugin/subprocess_probe.h: loads and describes a plugin file in a child process. A plugin that crashes, hangs
 * or exits becomes an error message, and neither its code nor its libraries enter this process. */
#ifndef WEFT_HOST_PLUGIN_SUBPROCESS_PROBE_H
#define WEFT_HOST_PLUGIN_SUBPROCESS_PROBE_H

#include "plugin/pins.h"
#include <jansson.h>

#define WEFT_PROBE_SECONDS 10

typedef enum weft_probe_result {
    WEFT_PROBE_LIST = 0, /* version, interface, help */
    WEFT_PROBE_KEYS = 1  /* its keys as well */
} weft_probe_result;

/* Returns an object:
 *   status                              "ok", "failed"; with WEFT_PROBE_LIST also "unusable": it was loaded and reports
 *                                       that a requirement is missing
 *   version, interface, help, sha256    if it was loaded
 *   table_flags, keys                   with WEFT_PROBE_KEYS: the `flags` of the kind's table; an array of
 *                                       {name, type, flags, default, range, unit, help} as in weft_key
 *   reason                              an error message, if status is not "ok"
 * trust: NULL trusts all. seconds: timeout. Returns NULL on failure, with the reason in err. [main] */
json_t *weft_plugin_probe(const char *path, const char *kind, const char *id, const weft_trust *trust,
                          weft_probe_result what, double seconds, weft_error *err);

#endif
