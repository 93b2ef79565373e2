/* host/base/words.h: sentences that are put together piece by piece. */
#ifndef WEFT_HOST_BASE_WORDS_H
#define WEFT_HOST_BASE_WORDS_H

#include <stdbool.h>
#include <stdio.h>
#include <weft/base.h>

/* Appends to text, which has room for `size` bytes and stays terminated; what has no room is cut. */
void weft_words_append(char *text, size_t size, const char *format, ...) WEFT_PRINTF(3, 4);

/* Whether text ends with `end`. [any-thread] */
bool weft_words_end(const char *text, const char *end);
bool weft_words_end_in_any_case(const char *text, const char *end);

/* Control bytes become spaces, so that what came from a file cannot steer a terminal; a line's end and a tab stay. */
void weft_words_tame(char *text);

/* Prints to a stream, tamed. Without memory it prints nothing. */
void weft_words_print(FILE *to, const char *format, ...) WEFT_PRINTF(2, 3);

#endif
