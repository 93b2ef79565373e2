/* host/run/data_job.h: what a data plugin is given: seed, sizes, and the run's tokenizer behind a few functions. */
#ifndef WEFT_HOST_RUN_DATA_JOB_H
#define WEFT_HOST_RUN_DATA_JOB_H

#include "program/run.h"
#include <weft/data.h>
#include <weft/model.h>

/* text outlives the job, and is told which template by name the data use. */
void weft_data_job_fill(weft_data_job *job, weft_text *text, uint64_t seed, const weft_model_info *model);

/* A table of the tokenizer, or NULL. */
const weft_tokenizer_chat *weft_text_chat(const weft_text *text);
const weft_tokenizer_special *weft_text_special(const weft_text *text);

/* A conversation as ids, where the tokenizer renders any. */
weft_status weft_text_encode_chat(const weft_text *text, const weft_chat_sink *sink, const weft_chat *chat,
                                  weft_error *err);

#endif
