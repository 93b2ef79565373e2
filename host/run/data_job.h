/* host/run/data_job.h: the job of a data plugin: seed, sizes, the run's tokenizer, and memory that ranks of a
 * machine share. */
#ifndef WEFT_HOST_RUN_DATA_JOB_H
#define WEFT_HOST_RUN_DATA_JOB_H

#include "model/process_group.h"
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

#endif
