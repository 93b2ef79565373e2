/* host/command/skeleton.h: creates the directory of a new plugin from the installed templates.
 *
 * Templates are files of the installation, share/weft/template/new: those of a kind and those of all kinds (`common`).
 * In their text and names `weftnew-kind` is replaced by the kind, `weftnew-id` by the id, and `weftnew` and `WEFTNEW`
 * by a C name derived from the id. */
#ifndef WEFT_HOST_COMMAND_SKELETON_H
#define WEFT_HOST_COMMAND_SKELETON_H

#include "base/join.h"

enum { WEFT_SKELETON_NAME = 48 }; /* bytes of an id, including the zero */

/* Checks that the kind has a template. WEFT_E_USER: it has no template; the message lists the existing ones. */
weft_status weft_skeleton_kind(const char *templates, const char *kind, weft_error *err);

/* Checks an id. WEFT_E_USER: invalid for a new plugin. */
weft_status weft_skeleton_id(const char *id, weft_error *err);

/* Writes the directory `into` atomically; it must not exist. */
weft_status weft_skeleton_write(const char *templates, const char *kind, const char *id, const char *into,
                                weft_error *err);

#endif
