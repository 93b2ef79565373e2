/* host/plugin/scan.h: what plugins there are, found out at a distance.
 *
 * Each file is loaded in a child process with a time limit, so that one that crashes, hangs or ends the process becomes
 * a line of the answer with its reason, like one that is refused.
 */
#ifndef WEFT_HOST_PLUGIN_SCAN_H
#define WEFT_HOST_PLUGIN_SCAN_H

#include "plugin/search.h"
#include <jansson.h>

/* Appends an object per file to the array `out`, in search order:
 *   kind, id, file
 *   status                              "ok", "failed", "unusable" (apart.h), "hidden": a file of an earlier directory
 *                                       has its name
 *   version, interface, help, sha256    where it could be loaded
 *   reason                              a sentence, where status is not "ok"
 * seconds: for each file. [main] */
weft_status weft_plugins_scan(json_t *out, const weft_search *search, double seconds, weft_error *err);

#endif
