/* host/run/text.h: the run's text. The job of a data plugin: seed, sizes, the tokenizer, and memory that ranks of a
 * machine share. The tokenizer's files in a saved model, with changes for added tokens, and the tokens that end a
 * generated text.
 *
 * The main thread lists the files and rank 0 reads them once per run: each save writes the bytes from the start of
 * the run. */
#ifndef WEFT_HOST_RUN_TEXT_H
#define WEFT_HOST_RUN_TEXT_H

#include "model/process_group.h"
#include "model/stop_ids.h"
#include "program/run.h"

#include <weft/data.h>

/* Bytes that one rank of each machine makes and its other ranks map.
 *
 * The bytes are in a sealed memory file (memfd_create), which has no name and is freed with its last user. The
 * lowest rank of a machine makes them under a lock on the file. The others open it through /proc/PID/fd/N and wait
 * for the lock, which the kernel also releases when the process ends. */
typedef struct weft_data_share {
    const weft_process_group *peers; /* all ranks; NULL: this one only */
    const weft_host *host;
    int32_t node;    /* machine of this rank */
    bool is_called;  /* make_share was called */
    bool has_ended;  /* no more exchanges */
    bool is_apart;   /* this rank could not map another rank's bytes, and made its own */
    const void *map; /* NULL: not mapped */
    size_t bytes;    /* of the map */
} weft_data_share;

/* After create, with its status: ranks that wait in make_share fail with it. [collective] */
weft_status weft_data_share_end(weft_data_share *self, weft_status status, weft_error *err);
void weft_data_share_close(weft_data_share *self);

/* The context of a job. */
typedef struct weft_data_source {
    weft_text *text; /* its template is set by the data */
    weft_data_share *share;
} weft_data_source;

/* source and what it points to outlive the job. source->share NULL: the job has no share. */
void weft_data_job_fill(weft_data_job *job, weft_data_source *source, uint64_t seed, const weft_model_info *model);

/* A table of the tokenizer, or NULL. */
const weft_tokenizer_chat *weft_text_chat(const weft_text *text);
const weft_tokenizer_special *weft_text_special(const weft_text *text);

/* Encodes a conversation, if the tokenizer supports it. */
weft_status weft_text_encode_chat(const weft_text *text, const weft_chat_sink *sink, const weft_chat *chat,
                                  weft_error *err);

typedef struct weft_text_file {
    char *name; /* as the tokenizer reports it */
    char *text; /* the file's bytes, or changed ones for added tokens; NULL: not read on this rank */
    size_t bytes;
} weft_text_file;

typedef struct weft_text_files {
    weft_text_file *files; /* [n] */
    int32_t n;
    weft_stop_ids end;    /* ids that end a text, before those of the model's files; n 0: only those */
    weft_stop_ids others; /* of the run's model, for files without any, such as an adapter's */
} weft_text_files;

/* Lists the tokenizer's files and, if `reads`, reads them. model: the directory
 * that the run's model came from. Fails if a name leads out of the directory. To be cleared also after a failure.
 * [main] */
weft_status weft_text_files_list(weft_text_files *out, const weft_text *text, bool reads, const char *model,
                                 weft_error *err);
void weft_text_files_clear(weft_text_files *self);
/* Writes those that were read; a file that has such a name already stays as it is. The folder of templates in
 * WEFT_ADDITIONAL_TEMPLATES is created. The token that ends a text goes into the model's files there, or, without a
 * config.json, into a generation_config.json. */
weft_status weft_text_files_write(const weft_text_files *self, const char *directory, weft_error *err);

/* Returns the special token after an answer in the template; -1: none. named: NULL for the tokenizer's own template. */
weft_status weft_text_chat_end(int32_t *out, const weft_text *text, const char *named, weft_error *err);
/* Sets text->end_token by [tokenizer] end, after the data are created, and logs it if the model's files do not have
 * it. */
weft_status weft_text_end_decide(weft_text *text, const weft_run *run, weft_error *err);

/* Returns the ids that end a generated text: of the adapter's directory if it has any, else of the model's. */
weft_status weft_run_stop_ids(weft_stop_ids *out, const weft_run *run, const weft_text *text, weft_error *err);
/* For a conversation: selects the tokenizer of the adapter's directory if that has a chat template and the same
 * tokens, and the configuration names no other directory. Before weft_text_open. */
weft_status weft_run_use_adapter_tokenizer(weft_run *run, weft_error *err);
/* Returns the named template in the adapter's directory, with which it was trained; NULL: none. */
const char *weft_run_adapter_template(const weft_run *run, const weft_text *text);

#endif
