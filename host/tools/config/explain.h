/* host/tools/config/explain.h: the output of `weft config explain`. */
#ifndef WEFT_HOST_TOOLS_CONFIG_EXPLAIN_H
#define WEFT_HOST_TOOLS_CONFIG_EXPLAIN_H

#include "config/config.h"

/* Prints section.key, value and source (default, file:line, command line) of every filled key, as an aligned table or a
 * JSON array of objects. A secret's value is not shown. */
weft_status weft_config_explain(const weft_config *self, FILE *file, bool json, weft_error *err);

#endif
