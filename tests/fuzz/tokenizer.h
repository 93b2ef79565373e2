/* tokenizer.h: a tokenizer over one text: its ids lie in the vocabulary, and its answer is the same twice. */
#ifndef WEFT_TEST_FUZZ_TOKENIZER_H
#define WEFT_TEST_FUZZ_TOKENIZER_H

#include "fuzz.h"

#include <weft/tokenizer.h>

extern fuzz_entry weft_plugin_entry_bpe;

const weft_tokenizer_plugin *fuzz_bpe(void);

/* Encodes and decodes. True where the decoded bytes are those of the text. */
int fuzz_round_trip(const weft_tokenizer *tokenizer, const void *text, size_t n, uint32_t flags);

#endif
