/* pass.h: state of encoding one text, shared by encode.c and chat_encode.c. */
#ifndef BPE_PASS_H
#define BPE_PASS_H

#include "tokenizer.h"

typedef struct bpe_pass {
    const weft_tokenizer *tokenizer;
    const weft_ids_sink *sink;
    bpe_scratch *scratch;
    const char *text; /* complete text of the call */
    size_t bytes;
    bool continues;          /* the text continues an earlier range (cut.h) */
    bool plain;              /* special tokens are plain text */
    bpe_is_text_fn *is_text; /* for the normalized text; its context is this pass */
    size_t part;             /* start of the current range in the text */
    const char *normal;      /* the current range, normalized */
    size_t normal_bytes;
} bpe_pass;

/* Encodes a range of the original text, or an added token. self is a bpe_pass. */
weft_status bpe_pass_part(void *self, const bpe_added_token *token, size_t begin, size_t end, weft_error *err);
/* Sends the collected ids to the sink. */
weft_status bpe_pass_drain(const bpe_pass *self, weft_error *err);

#endif
