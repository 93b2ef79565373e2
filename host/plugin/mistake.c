/* host/plugin/mistake.c: see mistake.h. */
#include "plugin/mistake.h"

void weft_mistake_keep(weft_error *first, weft_status code, const char *format, ...) {
    va_list args;
    if (weft_mistake_made(first)) return;
    first->code = (int32_t)code;
    va_start(args, format);
    (void)vsnprintf(first->text, sizeof first->text, format, args);
    va_end(args);
}

weft_status weft_mistake_tell(const weft_error *first, weft_status status, weft_error *err) {
    return weft_mistake_made(first) ? weft_error_set(err, (weft_status)first->code, "%s", first->text) : status;
}
