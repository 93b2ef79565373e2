/* cut.h: where a long text can be cut so that its parts, encoded by themselves, give the ids of the whole. */
#ifndef BPE_CUT_H
#define BPE_CUT_H

#include "tokenizer.h"

/* What stands at a cut: none, "a\nb" before b, or "a b" before the blank, with ASCII letters for a and b. */
typedef enum bpe_cut_kind { BPE_CUT_NONE, BPE_CUT_LINE, BPE_CUT_BLANK } bpe_cut_kind;

/* Which cuts the tokenizer allows: decided from its steps alone, NONE where they are not known to allow one. */
bpe_cut_kind bpe_cut_of(const weft_tokenizer *tokenizer);

/* The first such place from `from` on; n: there is none. */
size_t bpe_cut_find(const weft_tokenizer *tokenizer, bpe_cut_kind kind, const char *text, size_t n, size_t from);

#endif
