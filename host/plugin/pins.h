/* host/plugin/pins.h: trusted plugin files by SHA-256.
 *
 * [plugins] pin pins single plugins to a build, "optimizer:lion=<hex>", separated by commas. [plugins] pin_list is a
 * file of lines as `sha256sum` prints them, "<hex>  anything", with comments from # on. Under [plugins] trust = pinned
 * only files with a hash in one of the two run; this includes the built-in plugins. A file is checked before its code
 * runs, from the descriptor that is mapped afterwards. */
#ifndef WEFT_HOST_PLUGIN_PINS_H
#define WEFT_HOST_PLUGIN_PINS_H

#include "plugin/plugin.h"
#include "plugin/preflight.h"

struct weft_trust {
    const char *pins;      /* [plugins] pin, validated; NULL: unset */
    const char *list;      /* the text of [plugins] pin_list, validated; NULL: unset */
    const char *list_path; /* its file; NULL: unset */
    int pinned;            /* trust = pinned */
};

/* Validates [plugins] pin. WEFT_E_USER if it cannot be parsed. [any-thread] */
weft_status weft_pins_check(const char *pins, weft_error *err);

/* Reads and validates the list; the caller frees *out. WEFT_E_USER: invalid list. [any-thread] */
weft_status weft_pins_read_list(char **out, const char *path, weft_error *err);

/* Fails with WEFT_E_USER if other users can change the list: trust = pinned requires a list that only this user
 * controls. [any-thread] */
weft_status weft_pins_guard_list(const char *path, weft_error *err);

/* Returns true if `pins` or the list contains the hash. [any-thread] */
int weft_trust_holds(const weft_trust *trust, const char sha256[65]);

/* Fails with WEFT_E_USER if a plugin of the note is pinned to another hash, or if the file must be pinned and is not.
 * path: of the file, for messages. trust: NULL trusts all. [any-thread] */
weft_status weft_trust_judge(const weft_trust *trust, const weft_preflight *note, const char sha256[65],
                             const char *path, weft_error *err);

#endif
