/* host/plugin/pins.h: [plugins] pin, the builds that the user holds plugins to: "optimizer:lion=<hex>", separated by
 * commas, where <hex> is the SHA-256 of the file. */
#ifndef WEFT_HOST_PLUGIN_PINS_H
#define WEFT_HOST_PLUGIN_PINS_H

#include "plugin/preflight.h"

/* WEFT_E_USER if it cannot be read. [any-thread] */
weft_status weft_pins_check(const char *pins, weft_error *err);

/* WEFT_E_USER: a plugin of the file with that note is pinned to another hash. pins: sound, or NULL. [any-thread] */
weft_status weft_pins_match(const char *pins, const weft_preflight *note, const char sha256[65], weft_error *err);

#endif
