/* host/run/data_job.h: what a data plugin is given: seed, sizes, the run's tokenizer behind a few functions, and memory
 * that ranks of a machine share. */
#ifndef WEFT_HOST_RUN_DATA_JOB_H
#define WEFT_HOST_RUN_DATA_JOB_H

#include "program/run.h"
#include "run/data_share.h"
#include <weft/data.h>
#include <weft/model.h>

/* The context of a job. */
typedef struct weft_data_source {
    weft_text *text; /* gets the template that the data use */
    weft_data_share *share;
} weft_data_source;

/* source and what it points to outlive the job. source->share NULL: the job has no share. */
void weft_data_job_fill(weft_data_job *job, weft_data_source *source, uint64_t seed, const weft_model_info *model);

/* A table of the tokenizer, or NULL. */
const weft_tokenizer_chat *weft_text_chat(const weft_text *text);
const weft_tokenizer_special *weft_text_special(const weft_text *text);

/* A conversation as ids, where the tokenizer renders any. */
weft_status weft_text_encode_chat(const weft_text *text, const weft_chat_sink *sink, const weft_chat *chat,
                                  weft_error *err);

#endif
