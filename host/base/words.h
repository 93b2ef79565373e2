/* host/base/words.h: builds and sanitizes text. */
#ifndef WEFT_HOST_BASE_WORDS_H
#define WEFT_HOST_BASE_WORDS_H

#include <stdbool.h>
#include <stdio.h>
#include <weft/base.h>

/* Appends to text, a buffer of `size` bytes that stays terminated; truncates if necessary. */
void weft_words_append(char *text, size_t size, const char *format, ...) WEFT_PRINTF(3, 4);

/* Returns whether text ends with `end`. [any-thread] */
bool weft_words_end(const char *text, const char *end);
bool weft_words_end_in_any_case(const char *text, const char *end);

/* Replaces control bytes other than newline and tab by spaces, so that text from a file cannot control a terminal. */
void weft_words_tame(char *text);

/* Prints sanitized text to a stream. Prints no text without memory. */
void weft_words_print(FILE *to, const char *format, ...) WEFT_PRINTF(2, 3);

#endif
