/* host/plugin/note.h: the note that a plugin file carries, as the host has read it. */
#ifndef WEFT_HOST_PLUGIN_NOTE_H
#define WEFT_HOST_PLUGIN_NOTE_H

#include <weft/base.h>

#define WEFT_FILE_PLUGINS 16  /* that one file may hold */
#define WEFT_NOTE_LINE    512 /* bytes of a line of the note, with its end */

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
    char launched[WEFT_NOTE_LINE]; /* "PMI_RANK PMI_SIZE", a list of pairs; "": none */
    char needed[1024];             /* libraries, "libm.so.6, libc.so.6" */
    int glibc_major, glibc_minor;
    int fast_math; /* its compiler was told to reorder sums: by the note, or by what a debugger reads */
} weft_preflight;

#endif
