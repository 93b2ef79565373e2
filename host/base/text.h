/* host/base/text.h: whole small files as text: config.json, an index. */
#ifndef WEFT_HOST_BASE_TEXT_H
#define WEFT_HOST_BASE_TEXT_H

#include <weft/base.h>

/* The file's bytes and a zero behind them; the caller frees *text. More than `limit` bytes, a directory, or a file that
 * cannot be read is an error. [any-thread] */
weft_status weft_text_read(char **text, size_t *bytes, const char *path, size_t limit, weft_error *err);

#endif
