/* host/base/bytes.c: see bytes.h. */
#include "base/bytes.h"

#include <stdlib.h>

weft_status weft_bytes_put(weft_bytes *bytes, const void *data, size_t n) {
    if (bytes->n + n > bytes->capacity) {
        const size_t capacity = (bytes->n + n) * 2;
        char *grown = realloc(bytes->data, capacity);
        if (grown == NULL) return WEFT_E_MEMORY;
        bytes->data = grown;
        bytes->capacity = capacity;
    }
    if (n > 0) memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    return WEFT_OK;
}

weft_status weft_bytes_put_ids(void *context, const int32_t *ids, size_t n) {
    return weft_bytes_put(context, ids, n * sizeof *ids);
}

weft_status weft_bytes_put_text(void *context, const char *text, size_t n) {
    return weft_bytes_put(context, text, n);
}

void weft_bytes_free(weft_bytes *bytes) {
    const weft_bytes empty = {0};
    free(bytes->data);
    *bytes = empty;
}
