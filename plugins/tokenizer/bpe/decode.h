/* decode.h: converts tokens to bytes: the "decoder" section of tokenizer.json, a list of steps over a list of texts. */
#ifndef BPE_DECODE_H
#define BPE_DECODE_H

#include "normal.h"

typedef enum bpe_decode_kind {
    BPE_DECODE_REPLACE,
    BPE_DECODE_BYTE_PIECES, /* "<0x41>" is a byte */
    BPE_DECODE_FUSE,
    BPE_DECODE_STRIP,
    BPE_DECODE_BYTE_LEVEL,
    BPE_DECODE_META
} bpe_decode_kind;

typedef struct bpe_decode_step {
    int32_t kind;
    int32_t scheme; /* META */
    int64_t start;  /* STRIP: number at the start and at the end */
    int64_t stop;
    bpe_text content; /* REPLACE, STRIP, META */
    bpe_pattern pattern;
} bpe_decode_step;

typedef struct bpe_decode {
    const weft_host *host;
    bpe_list steps; /* bpe_decode_step */
    bool joined;    /* a decoder exists; without one, blanks separate the tokens */
} bpe_decode;

/* Concatenated texts and their ends. */
typedef struct bpe_texts {
    bpe_list bytes;
    bpe_list ends; /* size_t */
} bpe_texts;

void bpe_texts_init(bpe_texts *self, const weft_host *host);
void bpe_texts_free(bpe_texts *self);
void bpe_texts_clear(bpe_texts *self);
void bpe_texts_end(bpe_texts *self); /* ends the current text */

weft_status bpe_decode_read(bpe_decode *self, const weft_host *host, const bpe_place *at, const json_t *json,
                            weft_error *err);
void bpe_decode_free(bpe_decode *self);

/* Runs all steps. texts[0] holds the tokens; *out points to the one of the two that holds the result. */
weft_status bpe_decode_run(const bpe_decode *self, bpe_matcher *matcher, bpe_texts texts[2], bpe_texts **out,
                           weft_error *err);

#endif
