/* host/plugin/note.h: the parsed note of a plugin file. */
#ifndef WEFT_HOST_PLUGIN_NOTE_H
#define WEFT_HOST_PLUGIN_NOTE_H

#include <weft/base.h>

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
    int glibc_major, glibc_minor;
    int fast_math; /* compiled with reordering of sums, according to the note or the debug information */
} weft_preflight;

#endif
