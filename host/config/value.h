/* host/config/value.h: validates and parses one value by its key, and makes relative paths absolute. */
#ifndef WEFT_HOST_CONFIG_VALUE_H
#define WEFT_HOST_CONFIG_VALUE_H

#include <stdbool.h>
#include <weft/keys.h>

/* bytes: the 8 bytes for a config struct. For string types they contain the pointer `text`. */
typedef struct weft_value {
    unsigned char bytes[8];
    char *text; /* in canonical form: decimal numbers, lists without blanks, absolute paths */
} weft_value;

/* Parses a value. directory: base of a relative path. On failure err continues "[section] key = value ": "is not a
 * whole number: give ...". */
weft_status weft_value_parse(weft_value *out, const weft_key *key, const char *text, const char *directory,
                             weft_error *err);
void weft_value_free(weft_value *self);

/* Returns false if the text cannot be printed: not UTF-8, or with control characters. */
bool weft_text_is_clean(const char *text, size_t n);

/* Joins directory (absolute) and path, without `.`, `..` and double slashes. A `..` after a symbolic link is kept,
 * because it does not lead back. An absolute path ignores directory; an empty one remains empty. The caller frees the
 * result. */
char *weft_path_absolute(const char *directory, const char *path);

/* Returns the real base directory for the relative paths of `file`, or the working directory for NULL. The caller frees
 * it; NULL: see errno. */
char *weft_path_home(const char *file);

#endif
