/* host/plugin/doubts.h: what a user should know of a plugin file before trusting it, and what is no error: somebody
 * else can replace it, it takes the name of one that comes with Weft, or its compiler was told to reorder sums. */
#ifndef WEFT_HOST_PLUGIN_DOUBTS_H
#define WEFT_HOST_PLUGIN_DOUBTS_H

#include "plugin/load.h"

/* Takes one: what stands behind the plugin's name, "can be changed by ...". */
typedef void weft_doubt_fn(void *context, const char *doubt);

/* All of the file at a canonical path as the plugin kind:id of its note. given: the path as named or found, which
 * may lead there by links. None of its code runs. [main] */
void weft_doubts_find(const char *path, const char *given, const weft_preflight *note, const char *kind, const char *id,
                      weft_doubt_fn *take, void *context);

/* A warning for each, once in the life of a process. [main] */
void weft_doubts_tell(const weft_plugin_file *file, const weft_loaded *loaded, const char *given);

#endif
