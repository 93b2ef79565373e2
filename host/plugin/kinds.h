/* host/plugin/kinds.h: the plugin kinds that this host supports, and the validation of their tables. */
#ifndef WEFT_HOST_PLUGIN_KINDS_H
#define WEFT_HOST_PLUGIN_KINDS_H

#include "plugin/note.h"
#include <weft/plugin.h>

/* Returns the interface number of a kind that this host supports; -1: unknown kind. [any-thread] */
int32_t weft_kind_interface(const char *kind);

/* Returns "model, optimizer, ...", all kinds. [any-thread] */
const char *weft_kind_list(void);

/* Checks kind and interface of one line of the note. [any-thread] */
weft_status weft_kind_fits(const weft_note_plugin *plugin, weft_error *err);

/* Checks the list that an entry returned: the same plugins as the note, all strings present, valid key tables, and
 * tables with all required slots. [main] */
weft_status weft_list_check(const weft_plugin_list *list, const weft_preflight *note, weft_error *err);

#endif
