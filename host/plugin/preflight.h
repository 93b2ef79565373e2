/* host/plugin/preflight.h: what a plugin file says about itself, and whether this host can take it, before it runs.
 *
 * Two exports and no other, a note in the known format, an SDK that fits, kinds and interfaces that this host has, a C
 * library that is new enough. The answer is a sentence with the fact that differs.
 */
#ifndef WEFT_HOST_PLUGIN_PREFLIGHT_H
#define WEFT_HOST_PLUGIN_PREFLIGHT_H

#include <weft/base.h>

#define WEFT_FILE_PLUGINS 16  /* that one file may hold */
#define WEFT_NOTE_LINE    512 /* bytes of a line of the note, with its end */

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
    char launched[WEFT_NOTE_LINE]; /* "PMI_RANK PMI_SIZE", a list of pairs; "": none */
    char needed[1024];             /* libraries, "libm.so.6, libc.so.6" */
    int glibc_major, glibc_minor;
} weft_preflight;

/* image: the whole file. WEFT_E_PLUGIN; the text begins with a verb, the caller puts the file's name before it.
 * [any-thread] */
weft_status weft_preflight_read(weft_preflight *out, const void *image, size_t size, weft_error *err);

/* A note's text alone. Reads as far as it understands; out->note is not set. [any-thread] */
weft_status weft_note_parse(weft_preflight *out, const char *note, weft_error *err);

#endif
