/* chat_template.c: a model's chat template; renders and encodes a small conversation. It must respect its limits and
 * report unsupported features. */
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../plugins/tokenizer/common/chat.h"
#include "plugin/services.h"

/* A byte-level tokenizer: each byte is an id, and "\u0100" and similar are the printable forms of other bytes. */
static const char *bytes_tokenizer(void) {
    static char text[8192];
    size_t n =
        (size_t)snprintf(text, sizeof text,
                         "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":256,\"content\":\"<s>\",\"special\":true,"
                         "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false}],"
                         "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                         "false,\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,"
                         "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"dropout\":null,"
                         "\"unk_token\":null,\"merges\":[],\"vocab\":{");
    unsigned hidden = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        const int shown = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\"\\u%04x\":%u", byte > 0 ? "," : "",
                              shown ? byte : 0x100 + hidden, byte);
        hidden += !shown;
    }
    (void)snprintf(text + n, sizeof text - n, "}}}");
    return text;
}

static weft_status drop_ids(void *context, const int32_t *ids, const int32_t *answers, size_t n) {
    int64_t *count = context;
    (void)ids;
    for (size_t i = 0; i < n; i++)
        if (answers[i] < -1) abort();
    *count += (int64_t)n;
    return WEFT_OK;
}

static weft_status drop_text(void *context, const char *bytes, size_t n) {
    (void)bytes;
    *(int64_t *)context += (int64_t)n;
    return WEFT_OK;
}

static weft_chat conversation(uint32_t flags) {
    static const char call[] =
        "{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.5,\"y\":[null]}}}]}";
    static const weft_chat_message messages[] = {
        {(uint32_t)sizeof *messages, 0, "system", " Be brief.\n", 11, NULL, 0},
        {(uint32_t)sizeof *messages, 0, "user", "Na\xC3\xAFve <s> \xF0\x9F\x98\x80?", 15, NULL, 0},
        {(uint32_t)sizeof *messages, 0, "assistant", NULL, 0, call, sizeof call - 1},
        {(uint32_t)sizeof *messages, 0, "tool", "42", 2, NULL, 0},
        {(uint32_t)sizeof *messages, 0, "assistant", "Yes: 42", 7, NULL, 0}};
    return (weft_chat){.struct_size = (uint32_t)sizeof(weft_chat),
                       .flags = flags,
                       .messages = messages,
                       .n_messages = sizeof messages / sizeof *messages,
                       .stride = (uint32_t)sizeof *messages,
                       .now = 1700000000};
}

/* Renders as text, which covers most inputs. */
static void render(chat_templates *templates, uint32_t flags) {
    const weft_chat chat = conversation(flags);
    weft_error err = WEFT_ERROR_INIT;
    chat_text text;
    const weft_status status = chat_render(&text, templates, &chat, true, &err);
    fuzz_judge(status, &err);
    if (status != WEFT_OK) return;
    for (size_t i = 0; i < text.text.n; i++)
        if (text.answers[i] < -1) abort();
    chat_text_free(&text, weft_services());
}

static void render_all(const uint8_t *data, size_t size) {
    static chat_templates templates;
    static chat_template own = {.name = "default"};
    weft_error err = WEFT_ERROR_INIT;
    if (templates.host == NULL && chat_open(&templates, weft_services(), NULL, &err) != WEFT_OK) abort();
    if (templates.tokens == NULL) templates.tokens = json_pack("{s:s}", "bos_token", "<s>");
    fuzz_judge(jinja_compile(&own.compiled, weft_services(), "chat_template", (const char *)data, size, &err), &err);
    if (own.compiled == NULL) return;
    templates.own = &own;
    templates.n_own = 1;
    render(&templates, 0);
    render(&templates, WEFT_CHAT_PROMPT);
    jinja_free(own.compiled);
    own.compiled = NULL;
}

static void converse(const weft_tokenizer *tokenizer, uint32_t flags) {
    const weft_chat chat = conversation(flags);
    const weft_tokenizer_chat *table = fuzz_bpe()->extension(tokenizer, WEFT_TOKENIZER_CHAT);
    int64_t count = 0;
    const weft_chat_sink to_ids = {&count, drop_ids};
    const weft_text_sink to_text = {&count, drop_text};
    weft_error err = WEFT_ERROR_INIT;
    fuzz_judge(table->check(tokenizer, NULL, &err), &err);
    fuzz_judge(table->render(tokenizer, &to_text, &chat, &err), &err);
    fuzz_judge(table->encode(tokenizer, &to_ids, &chat, &err), &err);
}

/* Encodes with a complete tokenizer, at ten times the cost: only the first inputs, which are the seeds, and one of 16
 * others. */
static void encode_all(const uint8_t *data, size_t size) {
    static int written;
    weft_tokenizer *tokenizer = NULL;
    weft_error err = WEFT_ERROR_INIT;
    if (!written) {
        const char *text = bytes_tokenizer();
        (void)fuzz_file("tokenizer.json", text, strlen(text));
        (void)fuzz_file("tokenizer_config.json", "{\"bos_token\":\"<s>\"}", 19);
        written = 1;
    }
    (void)fuzz_file("chat_template.jinja", data, size);
    if (fuzz_bpe()->create(&tokenizer, weft_services(), NULL, fuzz_directory(), &err) != WEFT_OK) {
        (void)fprintf(stderr, "fuzz: %s\n", err.text);
        abort();
    }
    converse(tokenizer, 0);
    converse(tokenizer, WEFT_CHAT_PROMPT | WEFT_CHAT_SPECIAL);
    fuzz_bpe()->destroy(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint64_t n;
    render_all(data, size);
    if (n++ < 256 || n % 16 == 0) encode_all(data, size);
    return 0;
}
