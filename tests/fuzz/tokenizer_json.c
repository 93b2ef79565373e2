/* tokenizer_json.c: tokenizer.json; accepted tokenizers encode and decode a text with all kinds of bytes. */
#include "tokenizer.h"

#include "plugin/services.h"

static const char text[] = "The cat's  2048 \xC3\xA4pfel\n\t<s> a</s>\xFF\xF0\x9F\x98\x80 e\xCC\x81.";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    weft_tokenizer *tokenizer = NULL;
    weft_error err = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    (void)fuzz_file("tokenizer.json", data, size);
    status = fuzz_bpe()->create(&tokenizer, weft_services(), NULL, fuzz_directory(), &err);
    fuzz_judge(status, &err);
    if (status != WEFT_OK) return 0;
    (void)fuzz_round_trip(tokenizer, text, sizeof text - 1, WEFT_ENCODE_BOS | WEFT_ENCODE_EOS);
    (void)fuzz_round_trip(tokenizer, text, sizeof text - 1, WEFT_ENCODE_PLAIN);
    fuzz_bpe()->destroy(tokenizer);
    return 0;
}
