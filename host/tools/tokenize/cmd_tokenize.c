/* host/tools/tokenize/cmd_tokenize.c: `weft tokenize`: text to ids and back, between standard input and output. */
#include "cli/cli.h"

#include "base/alloc.h"
#include "base/text.h"
#include "config/config.h"
#include "plugin/enter.h"
#include "plugin/plugin.h"
#include "plugin/services.h"
#include <weft/tokenizer.h>

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

static const weft_flag flags[] = {
    {"bos", NULL, false, "Add the beginning-of-sequence token."},
    {"eos", NULL, false, "Add the end-of-sequence token."},
    {"decode", NULL, false, "Read ids and write their bytes, special tokens by name."},
    {NULL, NULL, false, NULL},
};

/* A tokenizer with the defaults of its plugin's keys, without a configuration. */
typedef struct opened {
    weft_plugins *plugins;
    const weft_tokenizer_plugin *plugin;
    weft_tokenizer *tokenizer;
} opened;

static weft_status fill_defaults(void **out, const weft_plugin *plugin, weft_error *err) {
    weft_config *config = NULL;
    weft_status status = weft_config_load(&config, NULL, NULL, 0, err);
    *out = weft_alloc(plugin->config_size, 1);
    if (status == WEFT_OK)
        status = weft_config_fill(config, *out, "tokenizer", plugin->keys, plugin->n_keys, plugin->key_stride, err);
    weft_config_free(config);
    return status;
}

static weft_status open_tokenizer(opened *self, const char *directory, weft_error *err) {
    const weft_plugins_settings options = {.path = NULL};
    const weft_loaded *loaded = NULL;
    weft_plugin_call call;
    char *absolute = realpath(directory, NULL);
    void *config = NULL;
    weft_status status = WEFT_OK;
    if (absolute == NULL)
        return weft_error_set(err, WEFT_E_USER, "%.1000s: %s. Allowed: the directory of a model or of a tokenizer",
                              directory, strerror(errno));
    status = weft_plugins_create(&self->plugins, &options, err);
    if (status == WEFT_OK) status = weft_plugins_get(self->plugins, &loaded, "tokenizer", "bpe", err);
    if (status == WEFT_OK) status = fill_defaults(&config, loaded->plugin, err);
    if (status == WEFT_OK) {
        self->plugin = weft_loaded_table(loaded, tokenizer);
        weft_plugin_call_begin(&call, loaded, "create");
        status = self->plugin->create(&self->tokenizer, weft_services(), config, absolute, err);
        status = weft_plugin_call_made(&call, status, self->tokenizer, err);
    }
    free(config);
    free(absolute);
    return status;
}

static void close_tokenizer(opened *self) {
    if (self->tokenizer != NULL) WEFT_PLUGIN_NOTIFY(self->plugin, destroy, self->tokenizer);
    weft_plugins_destroy(self->plugins);
}

static weft_status read_input(weft_bytes *out, weft_error *err) {
    char block[65536];
    size_t n = 0;
    while ((n = fread(block, 1, sizeof block, stdin)) > 0)
        if (weft_bytes_put(out, block, n) != WEFT_OK)
            return weft_error_set(err, WEFT_E_MEMORY, "no memory for the input after %zu bytes", out->n);
    if (ferror(stdin)) return weft_error_set(err, WEFT_E_SYSTEM, "the input cannot be read: %s", strerror(errno));
    return WEFT_OK;
}

/* Flushes buffered output: a full disk or a closed pipe is detected here. */
static weft_status written(bool whole, weft_error *err) {
    if (whole && fflush(stdout) == 0) return WEFT_OK;
    return weft_error_set(err, WEFT_E_SYSTEM, "the result cannot be written: %s", strerror(errno));
}

static weft_status encode(const opened *self, const weft_bytes *text, uint32_t how, weft_error *err) {
    weft_bytes bytes = {NULL, 0, 0};
    const weft_ids_sink sink = {&bytes, weft_bytes_put_ids};
    bool whole = true;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->plugin, encode, err, self->tokenizer, &sink, text->n > 0 ? text->data : "", text->n,
                     how);
    if (status == WEFT_OK) {
        const int32_t *ids = (const int32_t *)(const void *)bytes.data;
        for (size_t i = 0; i < bytes.n / sizeof *ids && whole; i++) whole = printf(i == 0 ? "%d" : " %d", ids[i]) > 0;
        status = written(whole && putchar('\n') != EOF, err);
    }
    weft_bytes_free(&bytes);
    return status;
}

/* Parses ids in the printed form: integers separated by white space. */
static weft_status parse_ids(weft_bytes *out, const weft_bytes *text, weft_error *err) {
    const char *end = text->data + text->n;
    for (const char *at = text->data; at < end;) {
        const char *word = at;
        int64_t value = 0;
        while (at < end && *at >= '0' && *at <= '9' && value <= INT32_MAX) value = value * 10 + (*at++ - '0');
        if (at > word && value <= INT32_MAX && (at == end || isspace((unsigned char)*at))) {
            const int32_t id = (int32_t)value;
            if (weft_bytes_put(out, &id, sizeof id) != WEFT_OK)
                return weft_error_set(err, WEFT_E_MEMORY, "no memory for %zu ids", out->n / sizeof id);
        } else if (at > word || !isspace((unsigned char)*at)) {
            return weft_error_set(err, WEFT_E_USER,
                                  "the input at byte %zu is not an id. Allowed with --decode: whole numbers from 0 to "
                                  "2147483647, separated by blanks",
                                  (size_t)(word - text->data));
        } else {
            at++;
        }
    }
    return WEFT_OK;
}

/* Reports ids without text, which the output cannot show. */
static void log_unknown_ids(const opened *self, const int32_t *ids, size_t n) {
    weft_tokenizer_info info = {.struct_size = (uint32_t)sizeof info};
    size_t past = 0;
    WEFT_PLUGIN_NOTIFY(self->plugin, info, self->tokenizer, &info);
    for (size_t i = 0; i < n; i++) past += ids[i] >= info.vocab_size;
    if (past == 0) return;
    if (past == 1)
        weft_log(weft_services(), WEFT_LOG_INFO, "an id of the input is past the tokenizer's %d and has no text",
                 (int)info.vocab_size);
    else
        weft_log(weft_services(), WEFT_LOG_INFO, "%zu ids of the input are past the tokenizer's %d and have no text",
                 past, (int)info.vocab_size);
}

static weft_status decode(const opened *self, const weft_bytes *text, weft_error *err) {
    weft_bytes ids = {NULL, 0, 0}, bytes = {NULL, 0, 0};
    const weft_text_sink sink = {&bytes, weft_bytes_put_text};
    weft_status status = text->n > 0 ? parse_ids(&ids, text, err) : WEFT_OK;
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, self->plugin, decode, err, self->tokenizer, &sink,
                         (const int32_t *)(const void *)ids.data, ids.n / sizeof(int32_t), WEFT_DECODE_KEEP_SPECIAL);
    if (status == WEFT_OK) log_unknown_ids(self, (const int32_t *)(const void *)ids.data, ids.n / sizeof(int32_t));
    if (status == WEFT_OK) status = written(bytes.n == 0 || fwrite(bytes.data, 1, bytes.n, stdout) == bytes.n, err);
    weft_bytes_free(&ids);
    weft_bytes_free(&bytes);
    return status;
}

static weft_exit tokenize_input(const weft_args *args, weft_error *err) {
    const bool back = weft_args_has(args, "decode");
    const uint32_t how = (weft_args_has(args, "bos") ? WEFT_ENCODE_BOS : 0u) |
                         (weft_args_has(args, "eos") ? WEFT_ENCODE_EOS : 0u);
    opened self = {NULL, NULL, NULL};
    weft_bytes input = {NULL, 0, 0};
    weft_status status = WEFT_OK;
    if (back && how != 0) {
        (void)weft_error_set(err, WEFT_E_USER, "--bos and --eos require encoding, without --decode");
        return WEFT_EXIT_USAGE;
    }
    status = open_tokenizer(&self, weft_args_extra(args, 0), err);
    if (status == WEFT_OK) status = read_input(&input, err);
    if (status == WEFT_OK) status = back ? decode(&self, &input, err) : encode(&self, &input, how, err);
    weft_bytes_free(&input);
    close_tokenizer(&self);
    return weft_exit_from(status);
}

static const weft_command weft_command_tokenize = {
    .name = "tokenize",
    .usage = "DIR < text",
    .takes = WEFT_TAKES_ARGUMENTS,
    .min_extra = 1,
    .max_extra = 1,
    .flags = flags,
    .more = "DIR holds tokenizer.json. The ids are printed on one line, separated by blanks. No token is added without "
            "--bos or --eos. Every byte of the input counts, its last line end too.",
    .examples = "  weft tokenize /models/TinyLlama < story.txt\n"
                "  echo \"1 306\" | weft tokenize /models/TinyLlama --decode\n",
    .run = tokenize_input,
};

int main(int argc, char **argv) {
    static const weft_command *const commands[] = {&weft_command_tokenize, NULL};
    return weft_cli_main(argc, argv, commands);
}
