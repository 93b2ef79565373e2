/* split.h: splits a normalized text into pre-tokens. Every pre-tokenizer of the format consists of four kinds of steps;
 * each result of a step runs through the following steps separately. */
#ifndef BPE_SPLIT_H
#define BPE_SPLIT_H

#include "pattern.h"

#define BPE_MOST_STEPS 16

typedef enum bpe_split_kind {
    BPE_SPLIT, /* split at a pattern */
    BPE_SPACE, /* prepend a blank if there is none */
    BPE_BYTES, /* replace each byte by its printable character */
    BPE_META   /* replace blanks, and optionally prepend the replacement */
} bpe_split_kind;

typedef enum bpe_behaviour {
    BPE_REMOVED,
    BPE_ISOLATED,
    BPE_MERGED_WITH_PREVIOUS,
    BPE_MERGED_WITH_NEXT,
    BPE_CONTIGUOUS
} bpe_behaviour;

typedef enum bpe_scheme { BPE_ALWAYS, BPE_FIRST, BPE_NEVER } bpe_scheme;

typedef struct bpe_split_step {
    int32_t kind;
    int32_t behaviour; /* BPE_SPLIT */
    int32_t scheme;    /* BPE_META: when to prepend the replacement */
    bool invert;
    bpe_text replacement;
    bpe_pattern pattern;
} bpe_split_step;

typedef struct bpe_split {
    const weft_host *host;
    bpe_list steps; /* bpe_split_step */
    bool bytes;     /* the steps contain BPE_BYTES */
} bpe_split;

weft_status bpe_split_read(bpe_split *self, const weft_host *host, const bpe_place *at, const json_t *json,
                           weft_error *err);
void bpe_split_free(bpe_split *self);

/* Receives the pre-tokens in order; none is empty. */
typedef weft_status bpe_piece_fn(void *context, const char *piece, size_t n, weft_error *err);

/* Runs all steps. buffers: BPE_MOST_STEPS of them. first: the text is at the start of the document. */
weft_status bpe_split_run(const bpe_split *self, bpe_matcher *matcher, bpe_list *buffers, const char *text, size_t n,
                          bool first, bpe_piece_fn *give, void *context, weft_error *err);

/* Reads replacement and scheme of a Metaspace, which may be a pre-tokenizer or a decoder. */
weft_status bpe_meta_read(bpe_text *replacement, int32_t *scheme, const weft_host *host, const bpe_place *at,
                          const json_t *json, weft_error *err);

/* Map a byte to its printable character, and back; -1: not such a character. */
int32_t bpe_byte_character(unsigned char byte);
int32_t bpe_character_byte(int32_t point);

#endif
