/* host/tools/common/messages.c: see messages.h. */
#include "tools/common/messages.h"

#include "base/text.h"

#include <stdlib.h>

void weft_words_print(FILE *to, const char *format, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) text = NULL;
    va_end(args);
    if (text == NULL) return;
    weft_words_sanitize(text);
    (void)fputs(text, to);
    free(text);
}
