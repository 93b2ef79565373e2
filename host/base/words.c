/* host/base/words.c: see words.h. */
#include "base/words.h"

#include <stdlib.h>
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

/* Returns the number of continuation bytes after the first byte of a UTF-8 character. */
static int32_t following(unsigned char lead) {
    return lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
}

/* C1 controls are two bytes in UTF-8, 0xC2 and 0x80 to 0x9F. To a terminal without UTF-8 they are one byte, the second
 * of these: there they are only allowed as part of a longer character. */
void weft_words_tame(char *text) {
    int32_t left = 0; /* remaining bytes of the current character */
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
        const bool goes_on = *at >= 0x80 && *at < 0xC0;
        if ((*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7F) *at = ' ';
        if (at[0] == 0xC2 && at[1] >= 0x80 && at[1] <= 0x9F) at[0] = at[1] = ' ';
        if (goes_on && left == 0 && *at <= 0x9F) *at = ' ';
        left = goes_on && left > 0 ? left - 1 : following(*at);
    }
}

void weft_words_print(FILE *to, const char *format, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) text = NULL;
    va_end(args);
    if (text == NULL) return;
    weft_words_tame(text);
    (void)fputs(text, to);
    free(text);
}
