/* broken_json.c: invalid JSON, or JSON that is not an object, for every reader of JSON in a user's files. All must
 * reject it with a message that names the file. A test of its own, without libFuzzer. */
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/stack.h"
#include "model/stop_ids.h"
#include "run/checkpoint.h"
#include "base/safetensors.h"
#include "model/declare.h"
#include "plugin/services.h"
#include <weft/plugin.h>

extern fuzz_entry weft_plugin_entry_llama;

#define DEEP 100000

/* n counts bytes after a NUL within the text; 0: up to its end. */
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
    {"\xef\xbb\xbf{}", 0}, {"{}\n{}", 0}, {"{\"a\":1,\"a\":1}", 0},
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
    /* JSON, but not an object */
    {"[]", 0}, {"1", 0}, {"\"a\"", 0}, {"null", 0}, {"true", 0}, {"[{}]", 0}};

/* Invalid values of a key and as an element: each class of malformed numbers, strings, words and lists among
 * JSONTestSuite's rejected files. */
static const char *const values[] = {
    "-", "- 1", "-01", "-012", "-1x", "-1.0.", "-2.", "-.1", "-NaN", "-Inf", "+Inf", "Inf", "inf", "infinity", "NAN",
    "++1", "1+", "1+2", "1-2", "1-", "0.1.2", "0.3e", "0.3e+", "0.e1", "0E", "0E+", "0e-", "1.0e", "1.0e-", "1.0e+",
    "1eE2", "1E-", "2.e+3", "2.e-3", "2.e3", "9.e+", "1.2a-3", "1.8011H-308", "1ea", "1e1\xe5", "1e\xe5", "0\xe5",
    "123\xe5", "\xef\xbc\x91", "0e+-1", "-1.5foo", "-foo", ".", "..1", "0x", "0x1", "012", "00", "2@", "1 000", "1,5",
    "TRUE", "fals", "tru", "nul", "nulll", "t", "True", "FALSE", "Null", "trueq", "a\xc3\xa5", "\xc3\xa5", "abc",
    "\xe9", "\xe5", "*", "#", "<.>", "<null>", "\\n", "\\u000A\"\"", "\xe2\x81\xa0", "\f", "\v1", "'one'", "'", "\"",
    "\"\\", "\"\\\"", "\"\\\\\"\"", "\"\"x", "\"\\a\"", "\"\\x00\"", "\"\\\t\"", "\"\\\xf0\x9f\x8c\x80\"",
    "\"\\\xe5\"", "\"\\u\"", "\"\\u00A\"", "\"\\uqqqq\"", "\"\\U0041\"", "\"\\uD834\\uDd\"", "\"\\uD800\\\"",
    "\"\\uD800\\u\"", "\"\\uD800\\u1\"", "\"\\uD800\\u1x\"", "\"\\uD800\\uD800\\x\"", "\"\\u\xe5\"", "\"new\nline\"",
    "\"a\tb\"", "\"\x1f\"", "\"\xa0\xa1\"", "\"\xc2\"", "\"\xf4\x90\x80\x80\"", "\"\xe0\x80\x80\"", "[\"\":1]",
    "[\"\"],", "[\"x\",,]", "[\"x\"]]", "[\"\",]", "[\"x\"", "[x", "[3[4]]", "[1:2]", "[,]", "[-]", "[   ,\"\"]",
    "[1,]", "[1,,]", "[*]", "[\"\"", "[\"a\",\n4\n,1,", "[1,\n1\n,1", "[{}", "[1}", "[1]x", "[][]", "[\"asd]",
    "[1,2,3", "[ fals", "[ false, nul", "[ true, fals", "[\\n]", "[{", "[\"a", "['", "[#]", "{\"x\", null}",
    "{\"x\"::1}", "{[:1}", "{\"a\" b}", "{:1}", "{\"a\" \"b\"}", "{\"a\":", "{\"a\"", "{1:1}", "{9999E9999:1}",
    "{null:null,null:null}", "{\"id\":0,,,,,}", "{'a':0}", "{\"id\":0,}", "{\"a\":1}/**/", "{\"a\":1}//",
    "{\"a\":1}/", "{\"a\":1,,\"c\":2}", "{a:1}", "{\"a\":\"a", "{\"foo\":\"bar\",\"a\"}", "{\"a\":1}#",
    "{\xf0\x9f\x87\xa8}", "{\"\xb9\":\"0\",}", "{\"a\":\"a\" 1}", "{\"x\": true,", "{}}", "{\"\":", "{\"a\":/**/1}",
    "{\"a\":true} \"x\"", "{,", "{[", "{\"a", "{'a'}", "[\"\\{[\"\\{"};
/* clang-format on */

static const char *reads; /* file of the current reader */

static weft_status read_config(const void *text, size_t n, weft_error *err) {
    const weft_plugin *plugin = fuzz_plugin(weft_plugin_entry_llama);
    struct weft_config *config = NULL;
    void *keys = fuzz_config(&config, plugin, NULL, 0);
    weft_declared *declared = NULL;
    const weft_status status =
        weft_declared_create(&declared, weft_services(), plugin->table, keys, fuzz_file(reads, text, n), NULL, err);
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

static weft_status read_origin(const void *text, size_t n, weft_error *err) {
    weft_adapter_origin origin;
    (void)fuzz_file(reads, text, n);
    return weft_origin_load(&origin, fuzz_directory(), err);
}

static weft_status read_stop_ids(const void *text, size_t n, weft_error *err) {
    weft_stop_ids ids;
    (void)fuzz_file(reads, text, n);
    return weft_stop_ids_read(&ids, fuzz_directory(), -1, err);
}

static const struct {
    const char *file;
    weft_status (*read)(const void *text, size_t n, weft_error *err);
} readers[] = {{"config.json", read_config},
               {"tokenizer.json", read_tokenizer},
               {"model.safetensors", read_tensors},
               {"model.safetensors.index.json", read_index},
               {WEFT_MANIFEST_NAME, read_manifest},
               {WEFT_ADAPTER_ORIGIN, read_origin},
               {"generation_config.json", read_stop_ids}};

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
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        static const char *const around[][2] = {{"{\"a\":", "}"}, {"{\"a\":[", "]}"}, {"", ""}};
        for (size_t k = 0; k < 3; k++) {
            const int n = snprintf(deep, DEEP, "%s%s%s", around[k][0], values[i], around[k][1]);
            /* "1,5" and similar are two elements of a list */
            if (k == 1 && (strcmp(values[i], "1,5") == 0 || strcmp(values[i], "[\"\"],") == 0)) continue;
            refuse(deep, (size_t)n);
        }
    }
    memset(deep, '[', DEEP);
    refuse(deep, DEEP);
    for (size_t i = 0; i + 5 <= DEEP; i += 5) memcpy(deep + i, "{\"a\":", 5);
    refuse(deep, DEEP);
    for (size_t i = 0; i + 5 <= DEEP; i += 5) memcpy(deep + i, "[{\"\":", 5); /* the last one is truncated */
    refuse(deep, DEEP);
    free(deep);
    (void)printf("%zu texts\n", sizeof texts / sizeof *texts + 3 * (sizeof values / sizeof *values));
    return faults > 0;
}
