/* broken_json.c: texts that are no JSON, or no object, each given to every reader of JSON in a user's files: all refuse
 * them with a sentence that names the file. A test by itself; libFuzzer has no part in it. */
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/manifest.h"
#include "model/declare.h"
#include "model/safetensors.h"
#include "plugin/services.h"
#include <weft/plugin.h>

extern fuzz_entry weft_plugin_entry_llama;

#define DEEP 100000

/* What stands behind a NUL within a text counts: n, or 0 for all up to the end. */
/* clang-format off */
static const struct {
    const char *text;
    size_t n;
} texts[] = {
    {"", 0}, {" \n", 0}, {"{", 0}, {"}", 0}, {"[", 0}, {"]", 0}, {"{]", 0}, {"[}", 0}, {"{\"a\"", 0}, {"{\"a\":", 0},
    {"{\"a\":1", 0}, {"{\"a\":1,", 0}, {"{\"a\":1,}", 0}, {"{,}", 0}, {"{,\"a\":1}", 0}, {"{\"a\":1,,\"b\":2}", 0},
    {"{\"a\" 1}", 0}, {"{\"a\"::1}", 0}, {"{\"a\";1}", 0}, {"{\"a\":1;\"b\":2}", 0}, {"{a:1}", 0}, {"{'a':1}", 0},
    {"{1:1}", 0}, {"{null:1}", 0}, {"{\"a\":1}}", 0}, {"{\"a\":1}{", 0}, {"{\"a\":1} x", 0}, {"{\"a\":1}//", 0},
    {"{\"a\":1/**/}", 0}, {"# {}", 0}, {"{\"a\":1}\0", 8}, {"\0{}", 3}, {"\xff\xfe{\0}\0", 6}, {"\xef\xbb\xbf", 0},
    {"\xef\xbb{}", 0}, {"{\"a\":01}", 0}, {"{\"a\":-}", 0}, {"{\"a\":+1}", 0}, {"{\"a\":1.}", 0}, {"{\"a\":.5}", 0},
    {"{\"a\":1e}", 0}, {"{\"a\":1e+}", 0}, {"{\"a\":1ee2}", 0}, {"{\"a\":0x10}", 0}, {"{\"a\":1 2}", 0},
    {"{\"a\":--1}", 0}, {"{\"a\":1_000}", 0}, {"{\"a\":NaN}", 0}, {"{\"a\":Infinity}", 0}, {"{\"a\":-Infinity}", 0},
    {"{\"a\":tru}", 0}, {"{\"a\":True}", 0}, {"{\"a\":nul}", 0}, {"{\"a\":None}", 0}, {"{\"a\":undefined}", 0},
    {"{\"a\":\"b}", 0}, {"{\"a\":\"\\x41\"}", 0}, {"{\"a\":\"\\u12\"}", 0}, {"{\"a\":\"\\u12g4\"}", 0},
    {"{\"a\":\"\\ud800\"}", 0}, {"{\"a\":\"\\ud800\\u0041\"}", 0}, {"{\"a\":\"\\udc00\"}", 0}, {"{\"a\":\"\\\"}", 0},
    {"{\"a\":\"x\ny\"}", 0}, {"{\"a\":\"x\ty\"}", 0}, {"{\"a\":\"\0\"}", 8}, {"{\"a\":\"\xff\"}", 0},
    {"{\"a\":\"\xc3\"}", 0}, {"{\"a\":\"\xc0\xaf\"}", 0}, {"{\"a\":\"\xed\xa0\x80\"}", 0},
    {"{\"a\":\"\xf5\x80\x80\x80\"}", 0}, {"{\"\xe4\":1}", 0}, {"{\"a\":[1,]}", 0}, {"{\"a\":[,1]}", 0},
    {"{\"a\":[1 2]}", 0}, {"{\"a\":[1,,2]}", 0}, {"{\"a\":[1}", 0}, {"{\"a\":[1;2]}", 0}, {"{\"a\":[\"x\":1]}", 0},
    {"{\"a\":{\"b\":1}", 0}, {"{\"a\":1,\"a\":2", 0}, {"{\"a\":*}", 0}, {"{\"a\":\\u0041}", 0}, {"<html></html>", 0},
    {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", 0},
    /* JSON, but no object */
    {"[]", 0}, {"1", 0}, {"\"a\"", 0}, {"null", 0}, {"true", 0}, {"[{}]", 0}};
/* clang-format on */

static const char *reads; /* what the reader at work reads */

static weft_status read_config(const void *text, size_t n, weft_error *err) {
    const weft_plugin *plugin = fuzz_plugin(weft_plugin_entry_llama);
    struct weft_config *config = NULL;
    void *keys = fuzz_config(&config, plugin, NULL, 0);
    weft_declared *declared = NULL;
    const weft_status status =
        weft_declared_create(&declared, weft_services(), plugin->table, keys, fuzz_file(reads, text, n), err);
    weft_declared_destroy(declared);
    fuzz_config_free(config, keys);
    return status;
}

static weft_status read_tokenizer(const void *text, size_t n, weft_error *err) {
    weft_tokenizer *tokenizer = NULL;
    (void)fuzz_file(reads, text, n);
    return fuzz_bpe()->create(&tokenizer, weft_services(), NULL, fuzz_directory(), err);
}

static weft_status read_tensors(const void *text, size_t n, weft_error *err) {
    weft_safetensors *tensors = NULL;
    weft_status status = WEFT_OK;
    char *bytes = calloc(1, 8 + n);
    if (bytes == NULL) abort();
    for (int i = 0; i < 8; i++) bytes[i] = (char)((uint64_t)n >> (8 * i));
    memcpy(bytes + 8, text, n);
    status = weft_safetensors_open(&tensors, fuzz_file(reads, bytes, 8 + n), err);
    weft_safetensors_close(tensors);
    free(bytes);
    return status;
}

static weft_status read_index(const void *text, size_t n, weft_error *err) {
    weft_safetensors *tensors = NULL;
    weft_status status = WEFT_OK;
    (void)remove(fuzz_file("model.safetensors", "", 0));
    (void)fuzz_file(reads, text, n);
    status = weft_safetensors_open_directory(&tensors, fuzz_directory(), err);
    weft_safetensors_close(tensors);
    return status;
}

static weft_status read_manifest(const void *text, size_t n, weft_error *err) {
    (void)fuzz_file(reads, text, n);
    return weft_manifest_glance(fuzz_directory(), 50, err);
}

static const struct {
    const char *file;
    weft_status (*read)(const void *text, size_t n, weft_error *err);
} readers[] = {{"config.json", read_config},
               {"tokenizer.json", read_tokenizer},
               {"model.safetensors", read_tensors},
               {"model.safetensors.index.json", read_index},
               {WEFT_MANIFEST_NAME, read_manifest}};

static int faults;

static void refuse(const void *text, size_t n) {
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        weft_error err = WEFT_ERROR_INIT;
        weft_status status = WEFT_OK;
        reads = readers[i].file;
        status = readers[i].read(text, n, &err);
        fuzz_judge(status, &err);
        if (status != WEFT_OK && strstr(err.text, reads) != NULL) continue;
        (void)fprintf(stderr, "%s takes <%.60s>, or does not name its file: %s\n", reads, (const char *)text, err.text);
        faults++;
    }
}

int main(void) {
    char *deep = malloc(DEEP);
    if (deep == NULL) abort();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        refuse(texts[i].text, texts[i].n > 0 ? texts[i].n : strlen(texts[i].text));
    memset(deep, '[', DEEP);
    refuse(deep, DEEP);
    for (size_t i = 0; i + 5 <= DEEP; i += 5) memcpy(deep + i, "{\"a\":", 5);
    refuse(deep, DEEP);
    free(deep);
    (void)printf("%zu texts\n", sizeof texts / sizeof *texts + 2);
    return faults > 0;
}
