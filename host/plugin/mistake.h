/* host/plugin/mistake.h: the first mistake of a plugin that answers by calls, where a call has no way to refuse.
 *
 * It is kept and everything after it does nothing, so that the plugin's code reads as a list without checks. A kept
 * mistake is a weft_error whose code is not WEFT_OK; it begins as WEFT_ERROR_INIT. */
#ifndef WEFT_HOST_PLUGIN_MISTAKE_H
#define WEFT_HOST_PLUGIN_MISTAKE_H

#include <weft/base.h>

#include <stdbool.h>

/* Nothing if one is kept already. */
void weft_mistake_keep(weft_error *first, weft_status code, const char *format, ...) WEFT_PRINTF(3, 4);

static inline bool weft_mistake_made(const weft_error *first) {
    return first->code != WEFT_OK;
}

/* status, or the kept mistake in its place. */
weft_status weft_mistake_tell(const weft_error *first, weft_status status, weft_error *err);

#endif
