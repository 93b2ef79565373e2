/* host/plugin/trust_warnings.h: trust warnings about a plugin file that are no errors: another user can replace it,
 * it has the name of a built-in plugin, or its compiler was allowed to reorder sums. */
#ifndef WEFT_HOST_PLUGIN_TRUST_WARNINGS_H
#define WEFT_HOST_PLUGIN_TRUST_WARNINGS_H

#include "plugin/load.h"

/* Receives one warning: the text after the plugin's name, "can be changed by ...". */
typedef void weft_trust_warning_fn(void *context, const char *doubt);

/* Finds all warnings for the file at a canonical path as the plugin kind:id of its note. given: the path as named or
 * found, which may contain links. Runs no code of the plugin. [main] */
void weft_trust_warnings_find(const char *path, const char *given, const weft_preflight *note, const char *kind,
                              const char *id, weft_trust_warning_fn *take, void *context);

/* Prints each warning once per process. [main] */
void weft_trust_warnings_log(const weft_plugin_file *file, const weft_loaded *loaded, const char *given);

#endif
