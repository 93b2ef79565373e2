/* Tokenizes texts by the tokenizer of a directory, for golden/make_tokenizer_families.py:
 *
 *     tokenizer_ids DIR <texts
 *
 * A text is a line, a JSON string. For each: a line of ids, and two of what they are decoded to, in hex, with special
 * tokens and without. */
#include "base/text.h"
#include "plugin/plugin.h"
#include "plugin/services.h"
#include <weft/tokenizer.h>

#include <jansson.h>
#include <stdlib.h>

typedef struct opened {
    const weft_tokenizer_plugin *plugin;
    weft_tokenizer *tokenizer;
} opened;

static weft_status open_tokenizer(opened *out, const char *directory, weft_error *err) {
    const weft_plugins_settings options = {.path = NULL};
    weft_plugins *plugins = NULL; /* loaded plugins stay until the process ends */
    const weft_loaded *loaded = NULL;
    weft_status status = weft_plugins_create(&plugins, &options, err);
    if (status == WEFT_OK) status = weft_plugins_get(plugins, &loaded, "tokenizer", "bpe", err);
    if (status == WEFT_OK) {
        out->plugin = weft_loaded_table(loaded, tokenizer);
        status = out->plugin->create(&out->tokenizer, weft_services(), NULL, directory, err);
    }
    weft_plugins_destroy(plugins);
    return status;
}

static weft_status print_decoded(const opened *self, const weft_bytes *ids, uint32_t flags, weft_error *err) {
    weft_bytes text = {NULL, 0, 0};
    const weft_text_sink sink = {&text, weft_bytes_put_text};
    const weft_status status = self->plugin->decode(self->tokenizer, &sink, (const int32_t *)(const void *)ids->data,
                                                    ids->n / sizeof(int32_t), flags, err);
    for (size_t i = 0; i < text.n; i++) (void)printf("%02x", (unsigned char)text.data[i]);
    (void)putchar('\n');
    weft_bytes_free(&text);
    return status;
}

static weft_status print_text(const opened *self, const json_t *text, weft_error *err) {
    weft_bytes ids = {NULL, 0, 0};
    const weft_ids_sink sink = {&ids, weft_bytes_put_ids};
    weft_status status =
        self->plugin->encode(self->tokenizer, &sink, json_string_value(text), json_string_length(text), 0, err);
    for (size_t i = 0; i < ids.n / sizeof(int32_t); i++)
        (void)printf("%d ", ((const int32_t *)(const void *)ids.data)[i]);
    (void)putchar('\n');
    if (status == WEFT_OK) status = print_decoded(self, &ids, WEFT_DECODE_KEEP_SPECIAL, err);
    if (status == WEFT_OK) status = print_decoded(self, &ids, 0, err);
    weft_bytes_free(&ids);
    return status;
}

int main(int argc, char **argv) {
    opened self = {NULL, NULL};
    weft_error err = WEFT_ERROR_INIT;
    char *line = NULL;
    size_t size = 0;
    ssize_t n = 0;
    weft_status status = argc == 2 ? open_tokenizer(&self, argv[1], &err)
                                   : weft_error_set(&err, WEFT_E_USER, "usage: tokenizer_ids DIR <texts");
    while (status == WEFT_OK && (n = getline(&line, &size, stdin)) > 0) {
        json_t *text = json_loadb(line, (size_t)n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        if (json_is_string(text)) status = print_text(&self, text, &err);
        else status = weft_error_set(&err, WEFT_E_USER, "a line is no JSON string");
        json_decref(text);
    }
    if (status != WEFT_OK) (void)fprintf(stderr, "%s\n", err.text);
    if (self.tokenizer != NULL) self.plugin->destroy(self.tokenizer);
    free(line);
    return status == WEFT_OK ? 0 : 1;
}
