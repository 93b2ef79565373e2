/* normal.h: what happens to a text before it is split: a list of steps, each from one buffer to the next. */
#ifndef BPE_NORMAL_H
#define BPE_NORMAL_H

#include "pattern.h"

typedef enum bpe_normal_kind { BPE_PREPEND, BPE_REPLACE, BPE_UNICODE, BPE_LOWERCASE } bpe_normal_kind;

typedef struct bpe_normal_step {
    int32_t kind;
    int32_t form;     /* BPE_UNICODE: utf8proc's options */
    bpe_text content; /* BPE_PREPEND and BPE_REPLACE: what is put in */
    bpe_pattern pattern;
} bpe_normal_step;

typedef struct bpe_normal {
    const weft_host *host;
    bpe_list steps; /* bpe_normal_step */
} bpe_normal;

/* json may be NULL or null: no steps. */
weft_status bpe_normal_read(bpe_normal *self, const weft_host *host, const bpe_place *at, const json_t *json,
                            weft_error *err);
void bpe_normal_free(bpe_normal *self);

/* *text and *n become the normalized text, which may lie in one of the two buffers. */
weft_status bpe_normal_run(const bpe_normal *self, bpe_matcher *matcher, bpe_list buffers[2], const char **text,
                           size_t *n, weft_error *err);

/* Bytes that n bytes of a text may become: no tokenizer that is meant comes near it, and one that is not must not take
 * all memory. */
static inline size_t bpe_longest(size_t n) {
    return 64 * n + (1u << 20);
}

/* Replaces every match in text; appends to out, which gets at most so many bytes. For decoders too. */
weft_status bpe_replace(const bpe_pattern *pattern, const bpe_text *content, bpe_matcher *matcher, bpe_list *out,
                        const char *text, size_t n, size_t most, weft_error *err);

#endif
