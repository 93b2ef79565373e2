/* host/plugin/libraries.h: applies the pins to the libraries of a pinned plugin.
 *
 * A plugin's file may name directories (DT_RPATH, DT_RUNPATH) or full paths of libraries, whose code runs when the
 * plugin is loaded. Under [plugins] trust = pinned each of these files must be pinned, and so must the files that they
 * name. Libraries in the system's directories (/usr/lib, /lib) are trusted. */
#ifndef WEFT_HOST_PLUGIN_LIBRARIES_H
#define WEFT_HOST_PLUGIN_LIBRARIES_H

#include "plugin/pins.h"

/* Fails with WEFT_E_USER if a library that the file at `path` names is not pinned; the text begins with a verb. image:
 * the file's bytes, a valid shared object. Returns WEFT_OK if trust is NULL or does not require pins. [any-thread] */
weft_status weft_libraries_judge(const weft_trust *trust, const void *image, size_t size, const char *path,
                                 weft_error *err);

#endif
