/* host/cli/learned.h: what an adapter's directory, or that of a run that has trained one, says of how to go on with
 * it: its base, how that was stored, and tokens that were added. */
#ifndef WEFT_HOST_CLI_LEARNED_H
#define WEFT_HOST_CLI_LEARNED_H

#include <stdbool.h>
#include <weft/base.h>

/* Texts are owned; NULL: there is none. */
typedef struct weft_learned {
    char *adapter, *base; /* its directory and its base's, absolute */
    char *stored;         /* [model] base of its run, where it is not auto */
    char *tokens, *pad;   /* [tokenizer] add and pad_token of its run */
} weft_learned;

/* found: false where the path is neither. One whose base is not there is an error. weft_learned_clear in any case. */
weft_status weft_learned_read(weft_learned *out, bool *found, const char *path, weft_error *err);
void weft_learned_clear(weft_learned *self);

#endif
