/* host/base/text.h: builds and sanitizes text, reads small text files, and parses JSON of other programs. */
#ifndef WEFT_HOST_BASE_TEXT_H
#define WEFT_HOST_BASE_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <weft/base.h>

/* Growable byte buffer. */
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

enum { WEFT_PATH_BYTES = 4096 };

/* Writes "directory/name"; only the name if directory is "". */
static inline weft_status weft_path_join(char path[WEFT_PATH_BYTES], const char *directory, const char *name,
                                         weft_error *err) {
    const int n = snprintf(path, WEFT_PATH_BYTES, "%s%s%s", directory, directory[0] == '\0' ? "" : "/", name);
    if (n >= 0 && n < WEFT_PATH_BYTES) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER, "%s/%s: the path is longer than %d bytes", directory, name,
                          WEFT_PATH_BYTES - 1);
}

/* Appends to text, a buffer of `size` bytes that stays terminated; truncates if necessary. */
void weft_words_append(char *text, size_t size, const char *format, ...) WEFT_PRINTF(3, 4);

/* Returns whether text ends with `end`. [any-thread] */
bool weft_words_end(const char *text, const char *end);

/* Replaces control bytes other than newline and tab by spaces, so that text from a file cannot control a terminal. */
void weft_words_sanitize(char *text);

/* Reads a file and appends a zero byte; the caller frees *text. Fails for more than `limit` bytes, a directory, or an
 * unreadable file. [any-thread] */
weft_status weft_text_read(char **text, size_t *bytes, const char *path, size_t limit, weft_error *err);

/* Parses strict JSON: one object in UTF-8. Rejects a byte order mark, a NUL byte, a repeated key and bytes after the
 * end. The error has the form "PATH:LINE:COLUMN: is not JSON: ...". flags: of jansson, such as JSON_DECODE_INT_AS_REAL
 * for integers beyond 64 bits. The caller releases *out, which is NULL on failure. [any-thread] */
weft_status weft_json_parse(json_t **out, const char *text, size_t bytes, size_t flags, const char *path,
                            weft_error *err);

/* Reads and parses a file of at most 100 MiB with weft_json_parse. [any-thread] */
weft_status weft_json_read(json_t **out, const char *path, size_t flags, weft_error *err);

#endif
