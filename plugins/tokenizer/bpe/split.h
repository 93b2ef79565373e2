/* split.h: how a normalized text is cut into the pieces that the model sees. Every pre-tokenizer of the format is made
 * of four kinds of steps; a piece that one step cuts off goes through the following steps by itself.
 */
#ifndef BPE_SPLIT_H
#define BPE_SPLIT_H

#include "pattern.h"

#define BPE_MOST_STEPS 16

typedef enum bpe_split_kind {
    BPE_SPLIT, /* cut at a pattern */
    BPE_SPACE, /* put a blank in front where there is none */
    BPE_BYTES, /* every byte becomes the printable character that stands for it */
    BPE_META   /* blanks become the replacement, which may also be put in front */
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
    int32_t scheme;    /* BPE_META: when to put the replacement in front */
    bool invert;
    bpe_text replacement;
    bpe_pattern pattern;
} bpe_split_step;

typedef struct bpe_split {
    const weft_host *host;
    bpe_list steps; /* bpe_split_step */
    bool bytes;     /* BPE_BYTES is among them */
} bpe_split;

weft_status bpe_split_read(bpe_split *self, const weft_host *host, const bpe_place *at, const json_t *json,
                           weft_error *err);
void bpe_split_free(bpe_split *self);

/* Receives the pieces in order; none is empty. */
typedef weft_status bpe_piece_fn(void *context, const char *piece, size_t n, weft_error *err);

/* buffers: BPE_MOST_STEPS of them. first: the text stands at the beginning of the document. */
weft_status bpe_split_run(const bpe_split *self, bpe_matcher *matcher, bpe_list *buffers, const char *text, size_t n,
                          bool first, bpe_piece_fn *give, void *context, weft_error *err);

/* Replacement and scheme of a Metaspace, which is a decoder as well. */
weft_status bpe_meta_read(bpe_text *replacement, int32_t *scheme, const weft_host *host, const bpe_place *at,
                          const json_t *json, weft_error *err);

/* The character that stands for a byte; the byte that a character stands for, or -1. */
int32_t bpe_byte_character(unsigned char byte);
int32_t bpe_character_byte(int32_t point);

#endif
