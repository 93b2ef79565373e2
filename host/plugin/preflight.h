/* host/plugin/preflight.h: validates a plugin file before it runs.
 *
 * Checks for exactly two exports, a note in the known format, a compatible SDK, supported kinds and interfaces, and a
 * sufficient C library. The error message names the fact that differs. */
#ifndef WEFT_HOST_PLUGIN_PREFLIGHT_H
#define WEFT_HOST_PLUGIN_PREFLIGHT_H

#include "plugin/note.h"

/* Validates an image, the complete file. WEFT_E_PLUGIN: the text begins with a verb, and the caller prefixes the file's
 * name. [any-thread] */
weft_status weft_preflight_read(weft_preflight *out, const void *image, size_t size, weft_error *err);

/* Parses only a note's text, as far as it is valid; out->note is not set. [any-thread] */
weft_status weft_note_parse(weft_preflight *out, const char *note, weft_error *err);

#endif
