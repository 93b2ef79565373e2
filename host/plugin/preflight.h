/* host/plugin/preflight.h: what a plugin file says about itself, and whether this host can take it, before it runs.
 *
 * Two exports and no other, a note in the known format, an SDK that fits, kinds and interfaces that this host has, a C
 * library that is new enough. The answer is a sentence with the fact that differs.
 */
#ifndef WEFT_HOST_PLUGIN_PREFLIGHT_H
#define WEFT_HOST_PLUGIN_PREFLIGHT_H

#include "plugin/note.h"

/* image: the whole file. WEFT_E_PLUGIN; the text begins with a verb, the caller puts the file's name before it.
 * [any-thread] */
weft_status weft_preflight_read(weft_preflight *out, const void *image, size_t size, weft_error *err);

/* A note's text alone. Reads as far as it understands; out->note is not set. [any-thread] */
weft_status weft_note_parse(weft_preflight *out, const char *note, weft_error *err);

#endif
