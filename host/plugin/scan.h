/* host/plugin/scan.h: lists all plugins that the search finds.
 *
 * A child process with a time limit loads each file. A file that crashes, hangs, exits or is rejected becomes a line of
 * the result with its reason. */
#ifndef WEFT_HOST_PLUGIN_SCAN_H
#define WEFT_HOST_PLUGIN_SCAN_H

#include "plugin/search.h"
#include <jansson.h>

/* Appends an object per file to the array `out`, in search order:
 *   kind, id, file
 *   status "ok", "failed", "unusable" (subprocess_probe.h), "hidden": an earlier directory has a
 *                                       file of the same name
 *   version, interface, help, sha256    if it was loaded
 *   reason                              an error message, if status is not "ok"
 * seconds: timeout for each file. [main] */
weft_status weft_plugins_scan(json_t *out, const weft_search *search, double seconds, weft_error *err);

#endif
