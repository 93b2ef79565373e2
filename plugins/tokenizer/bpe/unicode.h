/* unicode.h: decodes characters from bytes that may be invalid UTF-8, and classifies characters.
 *
 * A byte that belongs to no character counts as a unit of length 1 with the code point -1. */
#ifndef BPE_UNICODE_H
#define BPE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the length of the character or stray byte at the start of n > 0 bytes; *point: its code point or -1. */
size_t bpe_utf8_long(const char *bytes, size_t n, int32_t *point);

static inline size_t bpe_utf8(const char *bytes, size_t n, int32_t *point) {
    const unsigned char first = (unsigned char)bytes[0];
    if (first >= 0x80) return bpe_utf8_long(bytes, n, point);
    *point = first;
    return 1;
}

/* Encodes a character in at most 4 bytes; returns their number. */
size_t bpe_utf8_put(char *out, int32_t point);

/* Return the number of leading bytes that form valid characters, and of those that form none. */
size_t bpe_valid_prefix(const char *bytes, size_t n);
size_t bpe_stray_prefix(const char *bytes, size_t n);

/* All tables are part of this plugin, in the version of Unicode that the `tokenizers` library 0.23 uses: 16.0, for
 * numbers 17.0. */
enum { BPE_N_POINTS = 0x110000 };
int32_t bpe_category(int32_t point);                      /* number of the general category */
int32_t bpe_category_end(int32_t point);                  /* last character of the run with the same category */
bool bpe_category_is(int32_t category, const char *name); /* "L", "Lu" */
bool bpe_category_known(const char *name);

bool bpe_is_space(int32_t point);       /* Unicode's White_Space */
bool bpe_is_word(int32_t point);        /* letters, marks, digits, connectors: \w of UTS 18 */
bool bpe_is_numeric(int32_t point);     /* general category N */
bool bpe_is_punctuation(int32_t point); /* class of the Punctuation pre-tokenizer */
bool bpe_in_unicode_9(int32_t point);   /* version of the normalizers' tables */
int32_t bpe_lower(int32_t point);       /* maps one character to one */

#endif
