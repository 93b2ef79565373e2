/* host/plugin/load.h: validates and loads one plugin file; which files may run, and warnings about files that another
 * user can change (trust.c).
 *
 * The file is opened once. Its bytes are read, hashed and validated (preflight) from that descriptor. Then the dynamic
 * loader maps it by its canonical path, and the mapped file must be the same file. Files stay loaded and their
 * descriptors open until the process ends. A file that was rejected after its code ran is rejected again with the same
 * message: a second load would run no code and look valid. */
#ifndef WEFT_HOST_PLUGIN_LOAD_H
#define WEFT_HOST_PLUGIN_LOAD_H

#include "plugin/plugin.h"
#include "plugin/preflight.h"

#include <limits.h>

/* ---- pins: trusted plugin files by SHA-256 ----
 *
 * [plugins] pin pins single plugins to a build, "optimizer:lion=<hex>", separated by commas. [plugins] pin_list is a
 * file of lines as `sha256sum` prints them, "<hex>  anything", with comments from # on. Under [plugins] trust = pinned
 * only files with a hash in one of the two run; this includes the built-in plugins. A file is checked before its code
 * runs, from the descriptor that is mapped afterwards. */

struct weft_trust {
    const char *pins;      /* [plugins] pin, validated; NULL: unset */
    const char *list;      /* the text of [plugins] pin_list, validated; NULL: unset */
    const char *list_path; /* its file; NULL: unset */
    int pinned;            /* trust = pinned */
};

/* Reads and validates the list; the caller frees *out. WEFT_E_USER: an invalid list, or, with trust = pinned, a list
 * that other users can change. [any-thread] */
weft_status weft_pins_read_list(char **out, const char *path, bool pinned, weft_error *err);

/* Returns true if `pins` or the list contains the hash. [any-thread] */
bool weft_trust_holds(const weft_trust *trust, const char sha256[65]);

/* Fails with WEFT_E_USER if a plugin of the note is pinned to another hash, or if the file must be pinned and is not.
 * path: of the file, for messages. trust: NULL trusts all. [any-thread] */
weft_status weft_trust_check(const weft_trust *trust, const weft_preflight *note, const char sha256[65],
                             const char *path, weft_error *err);

/* ---- warnings about a file that is loaded nevertheless ---- */

enum { WEFT_WARNING_BYTES = 3 * PATH_MAX };

typedef struct weft_trust_warnings {
    char text[3][WEFT_WARNING_BYTES]; /* the text after the plugin's name, "can be changed by ..." */
    int n;
} weft_trust_warnings;

/* Finds the warnings for the file at a canonical path as the plugin kind:id: another user can change or
 * replace it, it has the name of a built-in plugin, or its compiler was allowed to reorder sums. given: the path as
 * named or found, which may contain links. Runs no code of the plugin.
 *
 * Another user can change a file with write permission on it. A user with write permission on a directory of its path,
 * or the owner of such a directory, can replace the file, except for other users' files in a sticky directory such as
 * /tmp. The owner of a link in the path can redirect it. [main] */
void weft_trust_warnings_find(weft_trust_warnings *out, const char *path, const char *given, bool fast_math,
                              const char *kind, const char *id);

/* Prints each warning of a loaded plugin once per process. [main] */
void weft_trust_warnings_log(const weft_loaded *loaded, const char *given);

/* ---- loading ---- */

/* Loads a file and selects its plugin by kind and id, or the only one of its kind if id is NULL. path: any path to the
 * file. trust: NULL trusts all; an untrusted file is WEFT_E_USER. *out lives as long as the process. Errors begin with
 * the file's name. [main] */
weft_status weft_plugin_load(const weft_loaded **out, const char *path, const weft_trust *trust, const char *kind,
                             const char *id, weft_error *err);

/* Reads the file's note if this host could load the file. Runs no code of the file. trust and errors as above. [main]
 */
weft_status weft_plugin_file_note(weft_preflight *out, const char *path, const weft_trust *trust, weft_error *err);

#endif
