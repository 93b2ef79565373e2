/* host/base/text.h: whole small files as text: config.json, an index. And the reader of all JSON that other programs
 * wrote. */
#ifndef WEFT_HOST_BASE_TEXT_H
#define WEFT_HOST_BASE_TEXT_H

#include <jansson.h>
#include <weft/base.h>

/* The file's bytes and a zero behind them; the caller frees *text. More than `limit` bytes, a directory, or a file that
 * cannot be read is an error. [any-thread] */
weft_status weft_text_read(char **text, size_t *bytes, const char *path, size_t limit, weft_error *err);

/* Parses strict JSON: one object in UTF-8 without a byte order mark, a NUL byte, a repeated key or bytes after
 * its end. The error has the form "PATH:LINE:COLUMN: is not JSON: ...". flags: of jansson, such as
 * JSON_DECODE_INT_AS_REAL for integers beyond 64 bits. The caller releases *out, which is NULL on failure.
 * [any-thread] */
weft_status weft_json_parse(json_t **out, const char *text, size_t bytes, size_t flags, const char *path,
                            weft_error *err);

/* Reads and parses a file of at most 100 MiB as weft_json_parse does. [any-thread] */
weft_status weft_json_read(json_t **out, const char *path, size_t flags, weft_error *err);

#endif
