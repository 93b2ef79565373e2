/* host/base/text.h: reads small text files (config.json, an index), and parses JSON of other programs. */
#ifndef WEFT_HOST_BASE_TEXT_H
#define WEFT_HOST_BASE_TEXT_H

#include <jansson.h>
#include <weft/base.h>

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
