/* host/command/skeleton.h: a new plugin's directory, made of the templates that lie beside the program.
 *
 * Templates are files of the installation, share/weft/template/new: those of a kind and those of all kinds (`common`).
 * In their text and names `weftnew-kind` stands for the kind, `weftnew-id` for the id, and `weftnew` and `WEFTNEW` for
 * a name of C that is made of the id. */
#ifndef WEFT_HOST_COMMAND_SKELETON_H
#define WEFT_HOST_COMMAND_SKELETON_H

#include "base/join.h"

enum { WEFT_SKELETON_NAME = 48 }; /* bytes of an id, the zero among them */

/* WEFT_E_USER: there is no template of the kind; the sentence has those that there are. */
weft_status weft_skeleton_kind(const char *templates, const char *kind, weft_error *err);

/* WEFT_E_USER: no id that a new plugin can have. */
weft_status weft_skeleton_id(const char *id, weft_error *err);

/* Writes the directory `into`, which appears whole; it must not be there yet. */
weft_status weft_skeleton_write(const char *templates, const char *kind, const char *id, const char *into,
                                weft_error *err);

#endif
