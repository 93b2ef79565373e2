/* host/program/tokens.h: [tokenizer] add and pad: tokens added to a tokenizer, and rows of the model for them. */
#ifndef WEFT_HOST_PROGRAM_TOKENS_H
#define WEFT_HOST_PROGRAM_TOKENS_H

#include "program/run.h"

/* Sets *out to the pad token in a directory's tokenizer_config.json, which the caller frees; NULL: not found. */
weft_status weft_token_files_pad(char **out, const char *directory, weft_error *err);

/* Sets *out to the tokens in `has`/tokenizer.json that `had`/tokenizer.json does not list, except a pad token that only
 * `has` names: "A,B" in the order of their ids. The caller frees it. NULL: none, or a file does not exist. */
weft_status weft_token_files_more(char **out, const char *had, const char *has, weft_error *err);

/* Fails if the tokens of the run's adapter have other ids in this run. An adapter's directory has the tokenizer of its
 * training run. */
weft_status weft_token_files_check(const weft_run *run, weft_error *err);

/* True if the configuration adds tokens. */
bool weft_tokens_wanted(const weft_run *run);

/* Adds the tokens to a new tokenizer. A pad token that is already the tokenizer's own is not added. */
weft_status weft_tokens_add(weft_text *text, const weft_run *run, weft_error *err);

/* Sets run->vocabulary: the rows of the model grow to the highest id, and an added pad token becomes pad_token_id. */
weft_status weft_tokens_settle(weft_run *run, weft_error *err);

#endif
