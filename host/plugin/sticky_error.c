/* host/plugin/sticky_error.c: see sticky_error.h. */
#include "plugin/sticky_error.h"

void weft_sticky_error_keep(weft_error *first, weft_status code, const char *format, ...) {
    va_list args;
    if (weft_sticky_error_is_set(first)) return;
    first->code = (int32_t)code;
    va_start(args, format);
    (void)vsnprintf(first->text, sizeof first->text, format, args);
    va_end(args);
}

weft_status weft_sticky_error_report(const weft_error *first, weft_status status, weft_error *err) {
    return weft_sticky_error_is_set(first) ? weft_error_set(err, (weft_status)first->code, "%s", first->text) : status;
}
