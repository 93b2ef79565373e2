/* host/plugin/preflight.h: validates a plugin file before it runs, and its tables after it was loaded.
 *
 * Preflight requires exactly two exports, a note in the known format, a compatible SDK, supported kinds and interfaces,
 * and a sufficient C library. The error message names the fact that differs. */
#ifndef WEFT_HOST_PLUGIN_PREFLIGHT_H
#define WEFT_HOST_PLUGIN_PREFLIGHT_H

#include <weft/plugin.h>

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

#endif
