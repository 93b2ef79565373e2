/* host/checkpoint/text_files.h: the tokenizer's own files, which a saved model gets a copy of, or what became of them.
 *
 * The tokenizer is asked once, by the main thread; they are written by whoever saves. */
#ifndef WEFT_HOST_CHECKPOINT_TEXT_FILES_H
#define WEFT_HOST_CHECKPOINT_TEXT_FILES_H

#include "model/stop_ids.h"
#include "setup/run.h"

typedef struct weft_text_file {
    char *name; /* as the tokenizer says it */
    char *text; /* what is written in place of the file, where a pad token was added; NULL: the file is copied */
    size_t bytes;
} weft_text_file;

typedef struct weft_text_files {
    const char *directory; /* that they lie in */
    weft_text_file *files; /* [n] */
    int32_t n;
    weft_stop_ids end;    /* of a text, before those of the model's files; n 0: those alone */
    weft_stop_ids others; /* of the run's model, for files that have none, such as those of an adapter */
} weft_text_files;

/* Queries the tokenizer; text: NULL where there is none. model: the directory that the run's model came from. To be
 * cleared also after a failure. [main] */
weft_status weft_text_files_list(weft_text_files *out, const weft_text *text, const char *model, weft_error *err);
void weft_text_files_clear(weft_text_files *self);

/* Bytes that they take at most. */
int64_t weft_text_files_bytes(const weft_text_files *self, int64_t block);

/* Writes them; what is there already under such a name stays as it is. Refused: a name that leads elsewhere. The token
 * that ends a text goes into the model's files there, or, without a config.json, into a generation_config.json. */
weft_status weft_text_files_write(const weft_text_files *self, const char *directory, weft_error *err);

#endif
