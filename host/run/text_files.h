/* host/run/text_files.h: the tokenizer's own files, which a saved model gets a copy of, or what became of them.
 *
 * The tokenizer is asked once, by the main thread; they are written by whoever saves. */
#ifndef WEFT_HOST_RUN_TEXT_FILES_H
#define WEFT_HOST_RUN_TEXT_FILES_H

#include "program/run.h"

typedef struct weft_text_file {
    char *name; /* as the tokenizer says it */
    char *text; /* what is written in place of the file, where a pad token was added; NULL: the file is copied */
    size_t bytes;
} weft_text_file;

typedef struct weft_text_files {
    const char *directory; /* that they lie in */
    weft_text_file *files; /* [n] */
    int32_t n;
} weft_text_files;

/* Asks the tokenizer; text: NULL where there is none. To be cleared also after a failure. [main] */
weft_status weft_text_files_list(weft_text_files *out, const weft_text *text, weft_error *err);
void weft_text_files_clear(weft_text_files *self);

/* Bytes that they take at most. */
int64_t weft_text_files_bytes(const weft_text_files *self, int64_t block);

/* Writes them; what is there already under such a name stays as it is. Refused: a name that leads elsewhere. */
weft_status weft_text_files_write(const weft_text_files *self, const char *directory, weft_error *err);

#endif
