/* cut.h: finds positions at which a long text can be split so that its parts, encoded separately, produce the same
 * ids. */
#ifndef BPE_CUT_H
#define BPE_CUT_H

#include "tokenizer.h"

/* Context of a split: none allowed, "a\nb" before b, or "a b" before the blank, with ASCII letters a and b. */
typedef enum bpe_cut_kind { BPE_CUT_NONE, BPE_CUT_LINE, BPE_CUT_BLANK } bpe_cut_kind;

/* Returns the splits that the tokenizer's steps allow; NONE if they are not known to allow one. */
bpe_cut_kind bpe_cut_of(const weft_tokenizer *tokenizer);

/* Returns the first such position from `from` on; n if there is none. */
size_t bpe_cut_find(const weft_tokenizer *tokenizer, bpe_cut_kind kind, const char *text, size_t n, size_t from);

#endif
