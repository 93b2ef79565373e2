/* host/base/bytes.h: growable byte buffer. */
#ifndef WEFT_HOST_BASE_BYTES_H
#define WEFT_HOST_BASE_BYTES_H

#include <weft/base.h>

typedef struct weft_bytes {
    char *data; /* aligned for any type; NULL while empty */
    size_t n, capacity;
} weft_bytes;

/* Appends n bytes; on WEFT_E_MEMORY the buffer is unchanged. [any-thread] */
weft_status weft_bytes_put(weft_bytes *bytes, const void *data, size_t n);
/* Append as tokenizer sinks; context is a weft_bytes. */
weft_status weft_bytes_put_ids(void *context, const int32_t *ids, size_t n);
weft_status weft_bytes_put_text(void *context, const char *text, size_t n);

void weft_bytes_free(weft_bytes *bytes); /* also resets the buffer to empty */

#endif
