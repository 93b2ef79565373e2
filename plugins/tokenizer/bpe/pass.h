/* pass.h: one text on its way to ids: what encoding it and encoding a conversation share. */
#ifndef BPE_PASS_H
#define BPE_PASS_H

#include "tokenizer.h"

typedef struct bpe_pass {
    const weft_tokenizer *tokenizer;
    const weft_ids_sink *sink;
    bpe_scratch *scratch;
    const char *text; /* of the whole call */
    size_t bytes;
    bool continues;          /* the text goes on with one before it (cut.h) */
    bool plain;              /* every special token is text */
    bpe_is_text_fn *is_text; /* of the normalized text; its context is this pass */
    size_t part;             /* where the part at work begins in the text */
    const char *normal;      /* that part, normalized */
    size_t normal_bytes;
} bpe_pass;

/* A part of the text as it is; self is a bpe_pass. */
weft_status bpe_pass_part(void *self, const bpe_added_token *token, size_t begin, size_t end, weft_error *err);
/* What has been collected goes to the sink. */
weft_status bpe_pass_drain(const bpe_pass *self, weft_error *err);

#endif
