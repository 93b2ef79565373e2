/* host/program/tokens.h: [tokenizer] add and pad: tokens that a tokenizer gets beside its own, and rows of the model
 * for them. */
#ifndef WEFT_HOST_PROGRAM_TOKENS_H
#define WEFT_HOST_PROGRAM_TOKENS_H

#include "program/run.h"

/* Whether the configuration asks for any. */
bool weft_tokens_wanted(const weft_run *run);

/* Gives the tokens to a tokenizer that was just made; nothing where all that is asked for is a pad token, and its own
 * is written so already. */
weft_status weft_tokens_give(weft_text *text, const weft_run *run, weft_error *err);

/* run->vocabulary: where ids reach past the model's rows these grow, and the id of a pad token that was asked for
 * becomes the model's pad_token_id. */
weft_status weft_tokens_settle(weft_run *run, weft_error *err);

#endif
