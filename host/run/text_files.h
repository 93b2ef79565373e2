/* host/run/text_files.h: the tokenizer's own files, which a saved model gets a copy of, or what became of them.
 *
 * The main thread lists them and rank 0 reads them, once a run: each save writes the bytes that the run began with,
 * whatever became of the directory since. */
#ifndef WEFT_HOST_RUN_TEXT_FILES_H
#define WEFT_HOST_RUN_TEXT_FILES_H

#include "model/stop_ids.h"
#include "program/run.h"

typedef struct weft_text_file {
    char *name; /* as the tokenizer says it */
    char *text; /* the file's bytes, or what replaces them where tokens were added; NULL: not read on this rank */
    size_t bytes;
} weft_text_file;

typedef struct weft_text_files {
    weft_text_file *files; /* [n] */
    int32_t n;
    weft_stop_ids end;    /* of a text, before those of the model's files; n 0: those alone */
    weft_stop_ids others; /* of the run's model, for files that have none, such as those of an adapter */
} weft_text_files;

/* Lists the tokenizer's files and, if `reads`, reads them; text: NULL if there is no tokenizer. model: the directory
 * that the run's model came from. Fails if a name leads out of the directory. To be cleared also after a failure.
 * [main] */
weft_status weft_text_files_list(weft_text_files *out, const weft_text *text, bool reads, const char *model,
                                 weft_error *err);
void weft_text_files_clear(weft_text_files *self);

/* Bytes that they take at most, where they were read. */
int64_t weft_text_files_bytes(const weft_text_files *self, int64_t block);

/* Writes those that were read; a file that has such a name already stays as it is. The folder of templates in
 * WEFT_ADDITIONAL_TEMPLATES is created. The token that ends a text goes into the model's files there, or, without a
 * config.json, into a generation_config.json. */
weft_status weft_text_files_write(const weft_text_files *self, const char *directory, weft_error *err);

#endif
