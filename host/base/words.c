/* host/base/words.c: see words.h. */
#include "base/words.h"

#include <string.h>
#include <strings.h>

void weft_words_append(char *text, size_t size, const char *format, ...) {
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

bool weft_words_end(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

bool weft_words_end_in_any_case(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcasecmp(text + n - m, end) == 0;
}

/* C1 controls are two bytes in UTF-8: 0xC2 and 0x80 to 0x9F. */
void weft_words_tame(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
        if ((*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7F) *at = ' ';
        if (at[0] == 0xC2 && at[1] >= 0x80 && at[1] <= 0x9F) at[0] = at[1] = ' ';
    }
}
