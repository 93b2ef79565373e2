/* unicode.h: characters in bytes that need not be UTF-8, and the classes of characters that the format speaks of.
 *
 * A byte that belongs to no character is a unit of its own, one byte long, with the number -1.
 */
#ifndef BPE_UNICODE_H
#define BPE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the character or the stray byte at the front of n > 0 bytes; *point is its number or -1. */
size_t bpe_utf8_long(const char *bytes, size_t n, int32_t *point);

static inline size_t bpe_utf8(const char *bytes, size_t n, int32_t *point) {
    const unsigned char first = (unsigned char)bytes[0];
    if (first >= 0x80) return bpe_utf8_long(bytes, n, point);
    *point = first;
    return 1;
}

/* Writes a character, at most 4 bytes; returns how many. */
size_t bpe_utf8_put(char *out, int32_t point);

/* How many bytes at the front are whole characters; how many belong to none. */
size_t bpe_valid_prefix(const char *bytes, size_t n);
size_t bpe_stray_prefix(const char *bytes, size_t n);

/* Every table is one of this plugin, of the version of Unicode that the `tokenizers` library 0.23 uses for the same:
 * 16.0, numbers 17.0. */
enum { BPE_N_POINTS = 0x110000 };
int32_t bpe_category(int32_t point);                      /* number of the general category */
int32_t bpe_category_end(int32_t point);                  /* the last of those from point on that have the same */
bool bpe_category_is(int32_t category, const char *name); /* "L", "Lu" */
bool bpe_category_known(const char *name);

bool bpe_is_space(int32_t point);       /* Unicode's White_Space */
bool bpe_is_word(int32_t point);        /* letters, marks, digits, connectors: \w of UTS 18 */
bool bpe_is_numeric(int32_t point);     /* general category N */
bool bpe_is_punctuation(int32_t point); /* of the Punctuation pre-tokenizer */
bool bpe_in_unicode_9(int32_t point);   /* whose tables the normalizers use */
int32_t bpe_lower(int32_t point);       /* one character for one */

#endif
