/* host/plugin/pins.h: which plugin files the user trusts, by their SHA-256.
 *
 * [plugins] pin holds single plugins to a build, "optimizer:lion=<hex>", separated by commas; [plugins] pin_list is a
 * file of lines as `sha256sum` prints them, "<hex>  anything", and of comments from # on. Under [plugins] trust =
 * pinned nothing runs but files whose hash stands in one of the two, those that come with Weft as well: a file is
 * judged before its code runs, from the descriptor that is mapped then. */
#ifndef WEFT_HOST_PLUGIN_PINS_H
#define WEFT_HOST_PLUGIN_PINS_H

#include "plugin/plugin.h"
#include "plugin/preflight.h"

struct weft_trust {
    const char *pins;      /* [plugins] pin, sound; NULL: none */
    const char *list;      /* the text of [plugins] pin_list, sound; NULL: none */
    const char *list_path; /* its file; NULL: none */
    int pinned;            /* trust = pinned */
};

/* WEFT_E_USER if it cannot be read. [any-thread] */
weft_status weft_pins_check(const char *pins, weft_error *err);

/* The text of the file, which is the caller's to free, and sound. WEFT_E_USER: it is no such list. [any-thread] */
weft_status weft_pins_read_list(char **out, const char *path, weft_error *err);

/* WEFT_E_USER: others can change the list, so that it is no word of this user's, which trust = pinned needs.
 * [any-thread] */
weft_status weft_pins_guard_list(const char *path, weft_error *err);

/* True if the hash stands in `pins` or in the list. [any-thread] */
int weft_trust_holds(const weft_trust *trust, const char sha256[65]);

/* WEFT_E_USER: a plugin of the file with that note is pinned to another hash, or the file is to be pinned and is not.
 * path: of the file, for people. trust: NULL trusts all. [any-thread] */
weft_status weft_trust_judge(const weft_trust *trust, const weft_preflight *note, const char sha256[65],
                             const char *path, weft_error *err);

#endif
