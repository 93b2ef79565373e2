/* host/plugin/kinds.h: the kinds of plugin that this host knows, and the one place where their tables are verified. */
#ifndef WEFT_HOST_PLUGIN_KINDS_H
#define WEFT_HOST_PLUGIN_KINDS_H

#include "plugin/note.h"
#include <weft/plugin.h>

/* The interface number of a kind that this host speaks; -1: it does not know the kind. [any-thread] */
int32_t weft_kind_interface(const char *kind);

/* "model, optimizer, ...", all kinds. [any-thread] */
const char *weft_kind_list(void);

/* Kind and interface of one line of the note. [any-thread] */
weft_status weft_kind_fits(const weft_note_plugin *plugin, weft_error *err);

/* The list that an entry gave: the same plugins as the note, texts that are there, a key table that holds, a table
 * whose required slots are filled. [main] */
weft_status weft_list_check(const weft_plugin_list *list, const weft_preflight *note, weft_error *err);

#endif
