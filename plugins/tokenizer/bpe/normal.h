/* normal.h: normalizes a text before it is split: a list of steps, each from one buffer to the next. */
#ifndef BPE_NORMAL_H
#define BPE_NORMAL_H

#include "pattern.h"

typedef enum bpe_normal_kind { BPE_PREPEND, BPE_REPLACE, BPE_UNICODE, BPE_LOWERCASE } bpe_normal_kind;

typedef struct bpe_normal_step {
    int32_t kind;
    int32_t form;     /* BPE_UNICODE: options of utf8proc */
    bpe_text content; /* BPE_PREPEND and BPE_REPLACE: inserted text */
    bpe_pattern pattern;
} bpe_normal_step;

typedef struct bpe_normal {
    const weft_host *host;
    bpe_list steps; /* bpe_normal_step */
} bpe_normal;

/* Reads the steps. json may be NULL or null: no steps. */
weft_status bpe_normal_read(bpe_normal *self, const weft_host *host, const bpe_place *at, const json_t *json,
                            weft_error *err);
void bpe_normal_free(bpe_normal *self);

/* Normalizes *text; the result may be in one of the buffers. */
weft_status bpe_normal_run(const bpe_normal *self, bpe_matcher *matcher, bpe_list buffers[2], const char **text,
                           size_t *n, weft_error *err);

/* Returns the limit for the normalized size of n bytes. No real tokenizer is near it; it prevents a malicious one from
 * exhausting memory. */
static inline size_t bpe_longest(size_t n) {
    return 64 * n + (1u << 20);
}

/* Replaces every match in a text and appends the result to `out`, at most `most` bytes. Decoders use it too. */
weft_status bpe_replace(const bpe_pattern *pattern, const bpe_text *content, bpe_matcher *matcher, bpe_list *out,
                        const char *text, size_t n, size_t most, weft_error *err);

#endif
