/* host/plugin/load.h: validates and loads one plugin file; which files may run, and warnings about files that another
 * user can change.
 *
 * The file is opened once. Its bytes are read, hashed and validated (preflight) from that descriptor. Then the dynamic
 * loader maps it by its canonical path, and the mapped file must be the same file. Files stay loaded and their
 * descriptors open until the process ends. A file that was rejected after its code ran is rejected again with the same
 * message: a second load would run no code and look valid. */
#ifndef WEFT_HOST_PLUGIN_LOAD_H
#define WEFT_HOST_PLUGIN_LOAD_H

#include "plugin/plugin.h"

#include <limits.h>

/* ---- preflight: validates a plugin file before it runs, and its tables after it was loaded ----
 *
 * Preflight requires exactly two exports, a note in the known format, a compatible SDK, supported kinds and interfaces,
 * and a sufficient C library. The error message names the fact that differs. */

#define WEFT_FILE_PLUGINS 16  /* maximum plugins in one file */
#define WEFT_NOTE_LINE    512 /* maximum bytes of a line of the note, with its end */

#define WEFT_LAUNCH_AS "as " /* begins a launch line that names another communicator (weft/comm.h) */

typedef struct weft_note_plugin {
    char kind[16];
    char id[64];
    char version[32];
    uint32_t interface_major;
} weft_note_plugin;

typedef struct weft_preflight {
    char note[4096];
    uint32_t sdk, min_sdk; /* major * 1000 + minor */
    uint32_t n_plugins;
    weft_note_plugin plugins[WEFT_FILE_PLUGINS];
    char launch[WEFT_NOTE_LINE];   /* "/usr/bin/mpiexec -n {ranks}" (weft/comm.h); "": starts no ranks */
    char launched[WEFT_NOTE_LINE]; /* "PMI_RANK PMI_SIZE", a list of pairs; "": empty */
    char needed[1024];             /* libraries, "libm.so.6, libc.so.6" */
    int fast_math; /* compiled with reordering of sums, according to the note or the debug information */
} weft_preflight;

/* Validates an image, the complete file. WEFT_E_PLUGIN: the text begins with a verb, and the caller prefixes the file's
 * name. [any-thread] */
weft_status weft_preflight_read(weft_preflight *out, const void *image, size_t size, weft_error *err);

/* Parses only a note's text, as far as it is valid; out->note is not set. [any-thread] */
weft_status weft_note_parse(weft_preflight *out, const char *note, weft_error *err);

/* ---- kinds (kinds.c) ---- */

/* Returns "model, optimizer, ...", all kinds. [any-thread] */
const char *weft_kind_list(void);

/* Checks kind and interface of one line of the note. [any-thread] */
weft_status weft_kind_fits(const weft_note_plugin *plugin, weft_error *err);

/* Checks the list that an entry returned: the same plugins as the note, all strings present, valid key tables, and
 * tables with all required slots. [main] */
weft_status weft_list_check(const weft_plugin_list *list, const weft_preflight *note, weft_error *err);

/* ---- pins: trusted plugin files by SHA-256 ----
 *
 * [plugins] pin pins single plugins to a build, "optimizer:lion=<hex>", separated by commas. [plugins] pin_list is a
 * file of lines as `sha256sum` prints them, "<hex>  anything", with comments from # on. Under [plugins] trust = pinned
 * only files with a hash in one of the two run; this includes the built-in plugins. A file is checked before its code
 * runs, from the descriptor that is mapped afterwards. */

struct weft_trust {
    char *pins;      /* [plugins] pin, validated; NULL: unset */
    char *list;      /* the text of [plugins] pin_list, validated; NULL: unset */
    char *list_path; /* its file; NULL: unset */
    int pinned;      /* trust = pinned */
};

/* Reads and validates the list; the caller frees *out. WEFT_E_USER: an invalid list, or, with trust = pinned, a list
 * that other users can change. [any-thread] */
weft_status weft_pins_read_list(char **out, const char *path, bool pinned, weft_error *err);

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
