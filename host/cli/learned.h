/* host/cli/learned.h: reads the settings for continuing an adapter from its directory or its run's directory: its base,
 * the base's storage format, and added tokens. */
#ifndef WEFT_HOST_CLI_LEARNED_H
#define WEFT_HOST_CLI_LEARNED_H

#include <stdbool.h>
#include <weft/base.h>

/* Strings are owned; NULL: unset. */
typedef struct weft_learned {
    char *adapter, *base; /* its directory and its base's, absolute */
    char *stored;         /* [model] base of its run, if it is not auto */
    char *tokens, *pad;   /* [tokenizer] add and pad_token of its run */
} weft_learned;

/* Reads the directory. found: false if the path is neither. A missing base is an error. Call weft_learned_clear in any
 * case. */
weft_status weft_learned_read(weft_learned *out, bool *found, const char *path, weft_error *err);
void weft_learned_clear(weft_learned *self);

#endif
