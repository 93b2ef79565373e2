/* tokenizer_text.c: a text, with a byte-level tokenizer, which reproduces every byte. The tokenizer's location is in
 * the environment (WEFT_SOURCE), as for the golden tests. */
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

#include "plugin/services.h"

static weft_tokenizer *open_once(void) {
    static weft_tokenizer *tokenizer; /* reused until the process ends */
    weft_error err = WEFT_ERROR_INIT;
    char path[4096];
    const char *source = getenv("WEFT_SOURCE");
    if (tokenizer != NULL) return tokenizer;
    (void)snprintf(path, sizeof path, "%s/tests/golden/tokenizer/gpt2-style", source != NULL ? source : ".");
    if (fuzz_bpe()->create(&tokenizer, weft_services(), NULL, path, &err) != WEFT_OK) {
        (void)fprintf(stderr, "fuzz: %s; WEFT_SOURCE names the folder that holds tests/\n", err.text);
        abort();
    }
    return tokenizer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const weft_tokenizer *tokenizer = open_once();
    (void)fuzz_round_trip(tokenizer, data, size, 0);
    if (!fuzz_round_trip(tokenizer, data, size, WEFT_ENCODE_PLAIN)) {
        (void)fprintf(stderr, "fuzz: the text does not come back\n");
        abort();
    }
    return 0;
}
