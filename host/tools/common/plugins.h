/* host/tools/common/plugins.h: help about keys and plugins, and the templates of new ones. */
#ifndef WEFT_HOST_TOOLS_COMMON_PLUGINS_H
#define WEFT_HOST_TOOLS_COMMON_PLUGINS_H

#include "base/text.h"
#include "plugin/plugin.h"

#include <stdio.h>

/* Prints the help of a valid key table: an aligned line per key, with its help on the next line if it would be too
 * long. */
void weft_key_table_print(const weft_key *keys, uint64_t n, uint32_t stride, FILE *file);

/* Appends an object per file of the search to the array `out`, in search order: weft_plugin_probe's, with kind, id and
 * file; status "hidden": an earlier directory has a file of the same name. seconds: timeout for each file. [main] */
weft_status weft_plugins_scan(json_t *out, const weft_plugins *plugins, double seconds, weft_error *err);

/* Writes the absolute path of an SDK template: in share/weft/template of the installation, or next to the program in a
 * build tree. WEFT_E_SYSTEM: this program was installed without them. */
weft_status weft_templates_find(char out[WEFT_PATH_BYTES], const char *name, weft_error *err);

#endif
