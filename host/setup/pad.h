/* host/setup/pad.h: [tokenizer] pad = add: a pad token for a tokenizer that has none, and a row for it. */
#ifndef WEFT_HOST_SETUP_PAD_H
#define WEFT_HOST_SETUP_PAD_H

#include "setup/run.h"

/* Gives the token to a tokenizer that was just made; nothing where its pad token is written so already. */
weft_status weft_pad_give(weft_text *text, const weft_run *run, weft_error *err);

/* run->vocabulary: the id becomes the model's pad_token_id, and where it is the first one behind the model's rows,
 * these grow by one. */
weft_status weft_pad_settle(weft_run *run, weft_error *err);

#endif
