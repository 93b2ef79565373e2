/* host/base/bytes.h: bytes that grow. */
#ifndef WEFT_HOST_BASE_BYTES_H
#define WEFT_HOST_BASE_BYTES_H

#include <weft/base.h>

typedef struct weft_bytes {
    char *data; /* aligned for any type; NULL while empty */
    size_t n, capacity;
} weft_bytes;

/* Appends; on WEFT_E_MEMORY nothing changed. [any-thread] */
weft_status weft_bytes_put(weft_bytes *bytes, const void *data, size_t n);
/* The same as the sinks of a tokenizer call it; context: a weft_bytes. */
weft_status weft_bytes_put_ids(void *context, const int32_t *ids, size_t n);
weft_status weft_bytes_put_text(void *context, const char *text, size_t n);

void weft_bytes_free(weft_bytes *bytes); /* and empties */

#endif
