/* host/checkpoint/text_files.h: the tokenizer's own files, which a saved model gets a copy of. */
#ifndef WEFT_HOST_CHECKPOINT_TEXT_FILES_H
#define WEFT_HOST_CHECKPOINT_TEXT_FILES_H

#include "setup/run.h"

typedef struct weft_text_files {
    const char *directory; /* that they lie in */
    char **names;          /* [n] as the tokenizer says them */
    int32_t n;
} weft_text_files;

/* Asks the tokenizer; text: NULL where there is none. To be cleared also after a failure. [main] */
weft_status weft_text_files_list(weft_text_files *out, const weft_text *text, weft_error *err);
void weft_text_files_clear(weft_text_files *self);

/* Bytes that their copies take at most. */
int64_t weft_text_files_bytes(const weft_text_files *self, int64_t block);

/* Copies them; what is there already under such a name stays as it is. Refused: a name that leads elsewhere. */
weft_status weft_text_files_copy(const weft_text_files *self, const char *directory, weft_error *err);

#endif
