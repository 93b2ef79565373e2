/* host/plugin/sticky_error.h: sticky error for plugin callbacks that cannot return a failure.
 *
 * The first error is stored and all later calls have no effect, so that the plugin's code needs no checks. A stored
 * error is a weft_error with a code other than WEFT_OK; it begins as WEFT_ERROR_INIT. */
#ifndef WEFT_HOST_PLUGIN_STICKY_ERROR_H
#define WEFT_HOST_PLUGIN_STICKY_ERROR_H

#include <weft/base.h>

#include <stdbool.h>

/* Stores an error, unless one is stored already. */
void weft_sticky_error_keep(weft_error *first, weft_status code, const char *format, ...) WEFT_PRINTF(3, 4);

static inline bool weft_sticky_error_is_set(const weft_error *first) {
    return first->code != WEFT_OK;
}

/* Returns the stored error, or status if there is no error. */
weft_status weft_sticky_error_report(const weft_error *first, weft_status status, weft_error *err);

#endif
