/* tokenizer.h: runs a tokenizer on a text: ids are in the vocabulary, and a repeated call has the same result. */
#ifndef WEFT_TEST_FUZZ_TOKENIZER_H
#define WEFT_TEST_FUZZ_TOKENIZER_H

#include "fuzz.h"

#include <weft/tokenizer.h>

extern fuzz_entry weft_plugin_entry_bpe;

const weft_tokenizer_plugin *fuzz_bpe(void);

/* Encodes and decodes. Returns true if the decoded bytes equal the text. */
int fuzz_round_trip(const weft_tokenizer *tokenizer, const void *text, size_t n, uint32_t flags);

#endif
