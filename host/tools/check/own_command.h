/* host/tools/check/own_command.h: runs this program's commands with the plugin under test. */
#ifndef WEFT_HOST_TOOLS_CHECK_OWN_COMMAND_H
#define WEFT_HOST_TOOLS_CHECK_OWN_COMMAND_H

#include "base/text.h"
#include "tools/check/plugin_under_test.h"

/* Runs weft with these arguments (NULL-terminated) and, if `chosen`, those that select the plugin and its keys. Output
 * goes to the files answer and log. WEFT_E_PLUGIN: the command failed. WEFT_E_UNSUPPORTED: the failure is a user error
 * and the plugin has not run before. A command with a hanging call is killed; this is an error, too, and
 * weft_own_command_hangs returns true afterwards. */
weft_status weft_own_command(const weft_plugin_under_test *tested, const char *const *words, bool chosen,
                             weft_error *err);
bool weft_own_command_hangs(void);

/* Returns the path of the small model's run.ini. */
weft_status weft_own_ini(char out[WEFT_PATH_BYTES], const weft_plugin_under_test *tested, weft_error *err);

/* Runs a command as weft_own_command does, and returns the number `loss` of the JSON object that it prints. */
weft_status weft_own_loss(double *loss, const weft_plugin_under_test *tested, const char *const *words, bool chosen,
                          weft_error *err);

#endif
