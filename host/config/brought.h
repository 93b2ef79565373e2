/* host/config/brought.h: refuses plugins that a run's directory or its model's brings along.
 *
 * A run's directory may come from a stranger, and its config.ini with it. A plugin's file inside of it would run its
 * code as soon as somebody evaluates the run. So the configuration that lies in the directory of a run may name no such
 * file; the command line may. */
#ifndef WEFT_HOST_CONFIG_BROUGHT_H
#define WEFT_HOST_CONFIG_BROUGHT_H

#include "config/config.h"

/* path: the INI file that was read. WEFT_E_USER: it is a run's own, and a value that counts names a plugin's file or
 * [plugins] path in that directory or in the model's, or by a relative path. */
weft_status weft_brought_check(const weft_config *self, const char *path, weft_error *err);

#endif
