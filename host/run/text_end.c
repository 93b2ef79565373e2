/* host/run/text_end.c: see text_end.h. */
#include "run/text_end.h"

#include "base/file.h"
#include "base/join.h"
#include "base/text.h"
#include "launch/world.h"
#include "plugin/enter.h"
#include "program/tokens.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- of a template ---- */

/* Of a sink whose context is the id. */
static weft_status take_end(void *context, const int32_t *ids, const int32_t *answers, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (answers[i] >= 0 && (answers[i] & WEFT_CHAT_END) != 0) *(int32_t *)context = ids[i];
    return WEFT_OK;
}

weft_status weft_text_chat_end(int32_t *out, const weft_text *text, const char *named, weft_error *err) {
    const weft_chat_message messages[] = {
        {.struct_size = (uint32_t)sizeof *messages, .role = "user", .content = "a", .content_bytes = 1},
        {.struct_size = (uint32_t)sizeof *messages, .role = "assistant", .content = "a", .content_bytes = 1}};
    const weft_chat chat = {.struct_size = (uint32_t)sizeof chat,
                            .messages = messages,
                            .n_messages = 2,
                            .stride = (uint32_t)sizeof *messages,
                            .named = named};
    const weft_chat_sink sink = {out, take_end};
    *out = -1;
    return weft_text_encode_chat(text, &sink, &chat, err);
}

/* ---- of a saved model ---- */

static weft_status put_text(void *context, const char *bytes, size_t n) {
    return fwrite(bytes, 1, n, context) == n ? WEFT_OK : WEFT_E_MEMORY;
}

/* How the token is written. */
static weft_status name_end(weft_text *text, weft_error *err) {
    size_t n = 0;
    FILE *to = open_memstream(&text->end_token, &n);
    const weft_text_sink sink = {to, put_text};
    weft_status status = WEFT_OK;
    if (to == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for the name of a token");
    WEFT_PLUGIN_CALL(status, text->plugin, decode, err, text->tokenizer, &sink, &text->end, 1,
                     WEFT_DECODE_KEEP_SPECIAL);
    if (fclose(to) == 0 || status != WEFT_OK) return status;
    return weft_error_set(err, WEFT_E_MEMORY, "no memory for the name of a token");
}

/* The id that [tokenizer] end chooses; -1: none. */
static weft_status choose_end(int32_t *out, const weft_text *text, const weft_run *run, weft_error *err) {
    const char *wanted = run->settings.tokenizer.end;
    const weft_tokenizer_special *special = weft_text_special(text);
    weft_error why = WEFT_ERROR_INIT;
    *out = -1;
    if (strcmp(wanted, "keep") == 0) return WEFT_OK;
    if (strcmp(wanted, "auto") == 0) {
        if (text->chats == 0 || weft_text_chat_end(out, text, text->chat_named, &why) == WEFT_OK) return WEFT_OK;
        if (weft_world_get()->rank > 0) return WEFT_OK;
        weft_log(run->host, WEFT_LOG_WARN,
                 "which token ends an answer is not known, so the saved model ends its text as its files say: %s. Fix: "
                 "name the token, [tokenizer] end = TOKEN",
                 why.text);
        return WEFT_OK;
    }
    *out = special == NULL ? -1 : special->id(text->tokenizer, wanted, strlen(wanted));
    if (*out >= 0) return WEFT_OK;
    return weft_config_reject(run->config, "tokenizer", "end", err,
                              "is no token of the tokenizer in %s. Allowed: auto, keep, or one of its special tokens, "
                              "as <|im_end|>",
                              text->directory);
}

weft_status weft_text_end_decide(weft_text *text, const weft_run *run, weft_error *err) {
    weft_stop_ids before = {.n = 0};
    char others[160] = "";
    weft_status status = choose_end(&text->end, text, run, err);
    if (status != WEFT_OK || text->end < 0) return status;
    status = name_end(text, err);
    if (status == WEFT_OK) status = weft_stop_ids_read(&before, run->settings.model.path, text->info.eos, err);
    if (status != WEFT_OK || (weft_stop_ids_have(&before, text->end) && text->info.eos == text->end)) return status;
    if (before.n == WEFT_MAX_STOP_IDS && !weft_stop_ids_have(&before, text->end))
        return weft_config_reject(run->config, "tokenizer", "end", err,
                                  "adds %s to the %d ids of eos_token_id, which are the most. Fix: end = keep",
                                  text->end_token, (int)before.n);
    if (weft_world_get()->rank > 0) return WEFT_OK;
    for (int32_t i = 0, n = 0; i < before.n; i++)
        if (before.ids[i] != text->end && n < (int)sizeof others - 16)
            n += snprintf(others + n, sizeof others - (size_t)n, ", %d", (int)before.ids[i]);
    weft_log(run->host, WEFT_LOG_INFO,
             "the saved model ends its text with %s: eos_token_id is %d%s. Set [tokenizer] end = keep to leave it as "
             "the model's files have it",
             text->end_token, (int)text->end, others);
    return WEFT_OK;
}

/* ---- of an adapter's directory ---- */

static weft_status find_file(bool *out, const char *directory, const char *name, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_status status = weft_path_join(path, directory, name, err);
    *out = false;
    if (status == WEFT_OK && directory[0] != '\0') status = weft_file_exists(out, path, err);
    return status;
}

weft_status weft_run_stop_ids(weft_stop_ids *out, const weft_run *run, const weft_text *text, weft_error *err) {
    const char *adapter = run->settings.adapter_from;
    bool has_own = false, has_config = false;
    weft_status status = find_file(&has_own, adapter, "generation_config.json", err);
    if (status == WEFT_OK) status = find_file(&has_config, adapter, "config.json", err);
    if (status != WEFT_OK) return status;
    return weft_stop_ids_read(out, has_own && !has_config ? adapter : run->settings.model.path, text->info.eos, err);
}

static weft_status find_template(bool *out, const char *directory, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    json_t *config = NULL;
    weft_status status = find_file(out, directory, "chat_template.jinja", err);
    if (status != WEFT_OK || *out) return status;
    status = find_file(out, directory, "tokenizer_config.json", err);
    if (status == WEFT_OK && *out) status = weft_path_join(path, directory, "tokenizer_config.json", err);
    if (status != WEFT_OK || !*out) return status;
    status = weft_json_read(&config, path, JSON_DECODE_INT_AS_REAL, err);
    *out = json_object_get(config, "chat_template") != NULL;
    json_decref(config);
    return status;
}

weft_status weft_run_use_adapter_tokenizer(weft_run *run, weft_error *err) {
    const char *from = run->settings.adapter_from;
    bool has_tokenizer = false, has_template = false;
    weft_status status = WEFT_OK;
    if (from[0] == '\0' || run->settings.tokenizer.path[0] != '\0' || weft_tokens_wanted(run)) return WEFT_OK;
    status = find_file(&has_tokenizer, from, "tokenizer.json", err);
    if (status == WEFT_OK && has_tokenizer) status = find_template(&has_template, from, err);
    if (has_template) run->settings.tokenizer.path = from;
    return status;
}

const char *weft_run_adapter_template(const weft_run *run, const weft_text *text) {
    enum { MOST_BYTES = 4 << 20 };
    const weft_tokenizer_chat *table = weft_text_chat(text);
    const char *found = NULL;
    char path[WEFT_PATH_BYTES], *source = NULL;
    size_t n = 0;
    if (run->settings.adapter_from[0] == '\0' || table == NULL || table->source == NULL) return NULL;
    if (weft_path_join(path, run->settings.adapter_from, "chat_template.jinja", NULL) != WEFT_OK ||
        weft_text_read(&source, &n, path, MOST_BYTES, NULL) != WEFT_OK)
        return NULL;
    for (uint32_t i = 0; found == NULL && table->named(i) != NULL; i++)
        if (strcmp(table->source(i), source) == 0) found = table->named(i);
    free(source);
    return found;
}
