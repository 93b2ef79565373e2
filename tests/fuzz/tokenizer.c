/* tokenizer.c: see tokenizer.h. */
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

const weft_tokenizer_plugin *fuzz_bpe(void) {
    return fuzz_plugin(weft_plugin_entry_bpe)->table;
}

static weft_status keep_ids(void *context, const int32_t *ids, size_t n) {
    return weft_bytes_put(context, ids, n * sizeof *ids);
}

static weft_status keep_text(void *context, const char *bytes, size_t n) {
    return weft_bytes_put(context, bytes, n);
}

static void check_ids(const weft_tokenizer *tokenizer, const int32_t *ids, size_t n) {
    weft_tokenizer_info info = {.struct_size = (uint32_t)sizeof info};
    fuzz_bpe()->info(tokenizer, &info);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= info.vocab_size) {
            (void)fprintf(stderr, "fuzz: id %d of a vocabulary of %d\n", (int)ids[i], (int)info.vocab_size);
            abort();
        }
}

int fuzz_round_trip(const weft_tokenizer *tokenizer, const void *text, size_t n, uint32_t flags) {
    weft_bytes ids = {NULL, 0, 0}, back = {NULL, 0, 0};
    const weft_ids_sink to_ids = {&ids, keep_ids};
    const weft_text_sink to_text = {&back, keep_text};
    weft_error err = WEFT_ERROR_INIT;
    int same = 0;
    weft_status status = fuzz_bpe()->encode(tokenizer, &to_ids, text, n, flags, &err);
    if (status == WEFT_OK) {
        const int32_t *list = (const int32_t *)(const void *)ids.data;
        check_ids(tokenizer, list, ids.n / sizeof *list);
        status = fuzz_bpe()->decode(tokenizer, &to_text, list, ids.n / sizeof *list, WEFT_DECODE_KEEP_SPECIAL, &err);
    }
    fuzz_judge(status, &err);
    same = status == WEFT_OK && back.n == n && (n == 0 || memcmp(back.data, text, n) == 0);
    free(ids.data);
    free(back.data);
    return same;
}
