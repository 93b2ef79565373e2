/* host/run/text_end.h: the tokens that end a generated text: those of the model's files, the one that the chat
 * template writes after an answer, and what a saved model has of both. */
#ifndef WEFT_HOST_RUN_TEXT_END_H
#define WEFT_HOST_RUN_TEXT_END_H

#include "model/stop_ids.h"
#include "run/data_job.h"

/* The special token that the template writes after an answer; -1: none. named: NULL for the tokenizer's own. */
weft_status weft_text_chat_end(int32_t *out, const weft_text *text, const char *named, weft_error *err);

/* Sets text->end_token by [tokenizer] end, once the data are there, and logs it where the model's files do not have
 * it. */
weft_status weft_text_end_decide(weft_text *text, const weft_run *run, weft_error *err);

/* The ids that end what this run's model generates: of its adapter's directory if it has any, else of the model's. */
weft_status weft_run_stop_ids(weft_stop_ids *out, const weft_run *run, const weft_text *text, weft_error *err);

/* For a conversation: takes the tokenizer of the adapter's directory where that has a chat template and the same
 * tokens, and the configuration names no other directory. Before weft_text_open. */
weft_status weft_run_use_adapter_tokenizer(weft_run *run, weft_error *err);

/* The named template that the run's adapter was trained with, which its directory carries; NULL: none of those. */
const char *weft_run_adapter_template(const weft_run *run, const weft_text *text);

#endif
