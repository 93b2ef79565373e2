/* host/tools/check/usable.h: whether a plugin says that it can work on this machine: its slot `works`. */
#ifndef WEFT_HOST_TOOLS_CHECK_USABLE_H
#define WEFT_HOST_TOOLS_CHECK_USABLE_H

#include "tools/check/plugin_under_test.h"

/* Asks it twice. WEFT_OK: it can, or has no such slot. WEFT_E_UNSUPPORTED: it says that it cannot, and err has its
 * sentence alone. WEFT_E_PLUGIN: how it answers breaks a rule. [main] */
weft_status weft_usable(const weft_plugin_under_test *tested, weft_error *err);

#endif
