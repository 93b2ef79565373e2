/* host/base/templates.h: finds the SDK templates that `weft plugins` uses. */
#ifndef WEFT_HOST_BASE_TEMPLATES_H
#define WEFT_HOST_BASE_TEMPLATES_H

#include "base/join.h"

/* Writes the absolute path of `name` in share/weft/template of the installation, or next to the program in a build
 * tree. WEFT_E_SYSTEM: this program was installed without them. */
weft_status weft_templates_find(char out[WEFT_PATH_BYTES], const char *name, weft_error *err);

#endif
