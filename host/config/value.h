/* host/config/value.h: one value's text, judged and read by its key. */
#ifndef WEFT_HOST_CONFIG_VALUE_H
#define WEFT_HOST_CONFIG_VALUE_H

#include <stdbool.h>
#include <weft/keys.h>

/* bytes: the 8 that a config struct receives. Where the type is a text, bytes hold the pointer `text`. */
typedef struct weft_value {
    unsigned char bytes[8];
    char *text; /* as it would be written again: numbers in decimal, lists without blanks, paths absolute */
} weft_value;

/* directory: where a relative path starts. On failure err reads on from "[section] key = value ": "is not a whole
 * number: give ..."; its code is WEFT_E_USER or WEFT_E_MEMORY. */
weft_status weft_value_parse(weft_value *out, const weft_key *key, const char *text, const char *directory,
                             weft_error *err);
void weft_value_free(weft_value *self);

/* False: the text is in no file that could be shown: not UTF-8, or with control characters. */
bool weft_text_is_clean(const char *text, size_t n);

/* True if `word` is one of the words of a STR's or PATH's range ("none | auto"). */
bool weft_words_have(const char *range, const char *word);

#endif
