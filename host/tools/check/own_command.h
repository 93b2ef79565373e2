/* host/tools/check/own_command.h: this program's own commands, run for a rule on the small model with the plugin
 * chosen. */
#ifndef WEFT_HOST_TOOLS_CHECK_OWN_COMMAND_H
#define WEFT_HOST_TOOLS_CHECK_OWN_COMMAND_H

#include "base/join.h"
#include "tools/check/plugin_under_test.h"

/* Runs weft with these words, ended by NULL, and, if `chosen`, those that choose the plugin and its keys. What it says
 * goes to the files answer and log. Broken where it does not end well; WEFT_E_UNSUPPORTED where that is a mistake in
 * what the user gave and the plugin has not run before. One in which a call does not come back is ended: that is
 * broken, too, and weft_own_command_hangs says so from then on. */
weft_status weft_own_command(const weft_plugin_under_test *tested, const char *const *words, bool chosen,
                             weft_error *err);
bool weft_own_command_hangs(void);

/* run.ini of the small model, in its own directory. */
weft_status weft_own_ini(char out[WEFT_PATH_BYTES], const weft_plugin_under_test *tested, weft_error *err);

/* A number of the object that the last command has printed; NaN: there is none. */
double weft_own_number(const char *key);

/* Both are there and are equal. */
bool weft_same_files(const char *a, const char *b);

#endif
