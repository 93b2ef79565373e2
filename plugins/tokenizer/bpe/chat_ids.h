/* chat_ids.h: extensions of this tokenizer: chat templates, and special tokens by name. */
#ifndef BPE_CHAT_IDS_H
#define BPE_CHAT_IDS_H

#include "tokenizer.h"

weft_status bpe_chat_check(const weft_tokenizer *tokenizer, const char *named, weft_error *err);
weft_status bpe_chat_render(const weft_tokenizer *tokenizer, const weft_text_sink *sink, const weft_chat *chat,
                            weft_error *err);
weft_status bpe_chat_encode(const weft_tokenizer *tokenizer, const weft_chat_sink *sink, const weft_chat *chat,
                            weft_error *err);
int32_t bpe_special_id(const weft_tokenizer *self, const char *name, size_t n);
int32_t bpe_is_special(const weft_tokenizer *self, int32_t id);

#endif
