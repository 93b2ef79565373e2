/* host/tools/check/newer_abi.h: a plugin in a later host of the same major version, whose structs are longer than it
 * knows.
 *
 * The plugin's table is exchanged for one that hands each call on with longer structs (newer_abi_struct.h). What is
 * told to the plugin is unchanged up to its end, arrays have wider strides, and of answers (docs/abi.md) it may
 * touch no byte behind that end, nor struct_size. So whatever answers a plugin gives as it is, it has to give
 * through this table. Shorter structs than those of SDK 1.0 there are none. */
#ifndef WEFT_HOST_TOOLS_CHECK_NEWER_ABI_H
#define WEFT_HOST_TOOLS_CHECK_NEWER_ABI_H

#include "tools/check/plugin_under_test.h"

/* A plugin with such a table; one a process. [main] */
const weft_loaded *weft_newer_abi_loaded(const weft_loaded *loaded);

/* The plugin under test with such a table. Made once a process, which tries one rule; it lives as long. NULL: no
 * memory. [main] */
const weft_plugin_under_test *weft_newer_abi(const weft_plugin_under_test *tested);

/* What has come of such a plugin under test, which the plugin answers as it is: WEFT_E_PLUGIN with a sentence where
 * it has failed or written what it must not, or where the answer is another one than without the longer structs;
 * what: "units". [main] */
weft_status weft_newer_abi_check(weft_status status, bool is_same, const char *what, weft_error *err);

#endif
