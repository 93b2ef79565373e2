/* host/config/brought.h: rejects plugin files from a run's directory or its model's directory.
 *
 * A run's directory and its config.ini may come from an untrusted source. A plugin's file in that directory would run
 * its code as soon as a user evaluates the run. Therefore the config.ini of a run's directory must not name such a
 * file; the command line may. */
#ifndef WEFT_HOST_CONFIG_BROUGHT_H
#define WEFT_HOST_CONFIG_BROUGHT_H

#include "config/config.h"

/* Checks the configuration. path: the INI file. WEFT_E_USER: it is in a run's directory, and an effective value names a
 * plugin's file or [plugins] path in that directory, in the model's, or by a relative path. */
weft_status weft_brought_check(const weft_config *self, const char *path, weft_error *err);

#endif
