/* host/run/text_files.c: see text_files.h. */
#include "run/text_files.h"

#include "base/alloc.h"
#include "base/file.h"
#include "model/config_json.h"
#include "plugin/enter.h"
#include "launch/world.h"
#include "program/sections.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MOST_BYTES = 1 << 30 };

/* Gets a file of a tokenizer with added tokens, if it differs from the directory's. */
static weft_status take_changed(weft_text_file *file, const weft_text *text, uint32_t i, weft_error *err) {
    int32_t changed = 0;
    weft_bytes bytes = {0};
    const weft_text_sink sink = {&bytes, weft_bytes_put_text};
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, text->added, file, err, text->tokenizer, i, &sink, &changed);
    if (status == WEFT_OK && weft_bytes_put(&bytes, "", 1) != WEFT_OK)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the tokenizer's file %s", file->name);
    if (changed == 0 || status != WEFT_OK) weft_bytes_free(&bytes);
    file->text = bytes.data;
    file->bytes = bytes.n > 0 ? bytes.n - 1 : 0;
    return status;
}

static bool is_additional(const char *name) {
    const size_t n = sizeof WEFT_ADDITIONAL_TEMPLATES - 1;
    return strncmp(name, WEFT_ADDITIONAL_TEMPLATES, n) == 0 && name[n] == '/';
}

/* A name must have no folder, except for a template in additional_chat_templates. */
static weft_status add_name(weft_text_files *self, const char *name, weft_error *err) {
    const char *at = is_additional(name) ? name + sizeof WEFT_ADDITIONAL_TEMPLATES : name;
    if (at[0] == '\0' || strchr(at, '/') != NULL || (at != name && at[0] == '.'))
        return weft_error_set(err, WEFT_E_PLUGIN, "the tokenizer names a file '%s', which is not a plain name", name);
    self->files = weft_realloc(self->files, self->n + 1, sizeof *self->files);
    self->files[self->n++] = (weft_text_file){.name = weft_strdup(name)};
    return WEFT_OK;
}

/* Replaces the templates of the files by the one that the model was trained with. */
static weft_status take_template(weft_text_files *self, const char *source, weft_error *err) {
    const char *name = "chat_template.jinja";
    weft_status status = WEFT_OK;
    int32_t n = 0;
    for (int32_t i = 0; i < self->n; i++) { /* transformers would select an additional template before the model's */
        weft_text_file *file = &self->files[i];
        if (!is_additional(file->name) && strcmp(file->name, name) != 0) self->files[n++] = *file;
        else {
            free(file->name);
            free(file->text);
        }
    }
    self->n = n;
    status = add_name(self, name, err);
    if (status != WEFT_OK) return status;
    self->files[n].text = weft_strdup(source);
    self->files[n].bytes = strlen(source);
    return WEFT_OK;
}

/* NULL: the tokenizer does not have the file, or it was not read. */
static const char *find_text(const weft_text_files *self, const char *name) {
    for (int32_t i = 0; i < self->n; i++)
        if (strcmp(self->files[i].name, name) == 0) return self->files[i].text;
    return NULL;
}

/* A template that writes eos_token would change its text with another token. */
static bool template_has_eos(const weft_text_files *self) {
    const char *source = find_text(self, "chat_template.jinja"), *config = NULL;
    char *dumped = NULL;
    json_t *root = NULL;
    bool has = source != NULL && strstr(source, "eos_token") != NULL;
    if (source == NULL) {
        config = find_text(self, "tokenizer_config.json");
        if (config != NULL) (void)weft_json_parse(&root, config, strlen(config), JSON_DECODE_INT_AS_REAL, "", NULL);
        dumped = json_dumps(json_object_get(root, "chat_template"), JSON_ENCODE_ANY);
        has = dumped != NULL && strstr(dumped, "eos_token") != NULL;
    }
    json_decref(root);
    free(dumped);
    return has;
}

/* Replaces eos_token in one of the tokenizer's files, if it has one and that differs. */
static weft_status change_eos(weft_text_file *file, const char *token, weft_error *err) {
    char *value = NULL;
    json_t *root = NULL, *name = json_string(token);
    weft_status status =
        file->text == NULL ? WEFT_OK
                           : weft_json_parse(&root, file->text, file->bytes, JSON_DECODE_INT_AS_REAL, file->name, err);
    const json_t *now = json_object_get(root, "eos_token");
    const char *is = json_string_value(json_is_object(now) ? json_object_get(now, "content") : now);
    const bool changes = now != NULL && (is == NULL || strcmp(is, token) != 0) && name != NULL;
    if (changes) value = json_dumps(name, JSON_ENCODE_ANY);
    if (value != NULL) {
        const weft_json_change change = {"eos_token", value};
        status = weft_config_json_change(&file->text, &file->bytes, &change, 1, err);
    }
    json_decref(name);
    json_decref(root);
    free(value);
    return status;
}

/* llama.cpp and vLLM read the tokenizer's eos_token, transformers reads generation_config.json or config.json. */
static weft_status take_end(weft_text_files *self, const weft_text *text, const char *model, weft_error *err) {
    weft_status status = weft_stop_ids_read(&self->others, model, text->info.eos, err);
    if (status != WEFT_OK) return status;
    self->end = (weft_stop_ids){.ids = {text->end}, .n = 1};
    if (template_has_eos(self)) return WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++)
        if (strcmp(self->files[i].name, "tokenizer_config.json") == 0 ||
            strcmp(self->files[i].name, "special_tokens_map.json") == 0)
            status = change_eos(&self->files[i], text->end_token, err);
    return status;
}

weft_status weft_text_files_list(weft_text_files *out, const weft_text *text, bool reads, const char *model,
                                 weft_error *err) {
    char path[WEFT_PATH_BYTES];
    weft_status status = WEFT_OK;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; text->plugin->file != NULL && status == WEFT_OK; i++) {
        const char *name = NULL;
        WEFT_PLUGIN_QUERY(name, text->plugin, file, text->tokenizer, i);
        if (name == NULL) break;
        status = add_name(out, name, err);
        if (status == WEFT_OK && text->added != NULL) status = take_changed(&out->files[i], text, i, err);
    }
    if (status == WEFT_OK && text->chat_source != NULL) status = take_template(out, text->chat_source, err);
    for (int32_t i = 0; reads && i < out->n && status == WEFT_OK; i++)
        if (out->files[i].text == NULL) {
            status = weft_path_join(path, text->directory, out->files[i].name, err);
            if (status == WEFT_OK)
                status = weft_text_read(&out->files[i].text, &out->files[i].bytes, path, MOST_BYTES, err);
        }
    return status == WEFT_OK && reads && text->end_token != NULL ? take_end(out, text, model, err) : status;
}

void weft_text_files_clear(weft_text_files *self) {
    for (int32_t i = 0; i < self->n; i++) {
        free(self->files[i].name);
        free(self->files[i].text);
    }
    free(self->files);
    memset(self, 0, sizeof *self);
}

weft_status weft_text_files_write(const weft_text_files *self, const char *directory, weft_error *err) {
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < self->n && status == WEFT_OK; i++) {
        const weft_text_file *file = &self->files[i];
        char path[WEFT_PATH_BYTES];
        bool is_there = false;
        if (is_additional(file->name)) {
            status = weft_path_join(path, directory, WEFT_ADDITIONAL_TEMPLATES, err);
            if (status == WEFT_OK && mkdir(path, 0777) != 0 && errno != EEXIST)
                status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be made: %s", path, strerror(errno));
        }
        if (status == WEFT_OK) status = weft_path_join(path, directory, file->name, err);
        if (status == WEFT_OK) status = weft_file_exists(&is_there, path, err);
        if (status == WEFT_OK && !is_there && file->text != NULL)
            status = weft_file_replace(path, file->text, file->bytes, err);
    }
    if (status != WEFT_OK || self->end.n == 0) return status;
    return weft_stop_ids_save(&self->end, &self->others, directory, err);
}

/* A sink; the context is the id. */
static weft_status note_chat_end(void *context, const int32_t *ids, const int32_t *answers, size_t n) {
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
    const weft_chat_sink sink = {out, note_chat_end};
    *out = -1;
    return weft_text_encode_chat(text, &sink, &chat, err);
}

/* Returns the id that [tokenizer] end selects; -1: none. */
static weft_status choose_end(int32_t *out, const weft_text *text, const weft_run *run, weft_error *err) {
    const char *wanted = run->settings.tokenizer.end;
    const weft_tokenizer_special *special = weft_text_special(text);
    weft_error why = WEFT_ERROR_INIT;
    *out = -1;
    if (strcmp(wanted, "keep") == 0) return WEFT_OK;
    if (strcmp(wanted, "auto") == 0) {
        if (text->chats == 0 || weft_text_chat_end(out, text, text->chat_named, &why) == WEFT_OK) return WEFT_OK;
        if (weft_world_get()->rank > 0) return WEFT_OK;
        weft_log(
            run->host, WEFT_LOG_WARN,
            "the token that ends an answer is unknown, so the saved model keeps the one of its files: %s. Fix: set "
            "[tokenizer] end = TOKEN",
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
    weft_bytes name = {0};
    const weft_text_sink sink = {&name, weft_bytes_put_text};
    char others[160] = "";
    weft_status status = choose_end(&text->end, text, run, err);
    if (status != WEFT_OK || text->end < 0) return status;
    WEFT_PLUGIN_CALL(status, text->plugin, decode, err, text->tokenizer, &sink, &text->end, 1,
                     WEFT_DECODE_KEEP_SPECIAL);
    if (status == WEFT_OK && weft_bytes_put(&name, "", 1) != WEFT_OK)
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory for the name of a token");
    text->end_token = name.data;
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

weft_status weft_run_use_adapter_tokenizer(weft_run *run, weft_error *err) {
    const char *from = run->settings.adapter_from;
    char path[WEFT_PATH_BYTES];
    json_t *config = NULL;
    bool has_tokenizer = false, has_template = false, has_config = false;
    weft_status status = WEFT_OK;
    if (from[0] == '\0' || run->settings.tokenizer.path[0] != '\0' || weft_tokens_wanted(run)) return WEFT_OK;
    status = find_file(&has_tokenizer, from, "tokenizer.json", err);
    if (status != WEFT_OK || !has_tokenizer) return status;
    status = find_file(&has_template, from, "chat_template.jinja", err);
    if (status == WEFT_OK && !has_template) status = find_file(&has_config, from, "tokenizer_config.json", err);
    if (status == WEFT_OK && has_config) status = weft_path_join(path, from, "tokenizer_config.json", err);
    if (status == WEFT_OK && has_config) status = weft_json_read(&config, path, JSON_DECODE_INT_AS_REAL, err);
    has_template = has_template || json_object_get(config, "chat_template") != NULL;
    json_decref(config);
    if (has_template) run->settings.tokenizer.path = from;
    return status;
}

const char *weft_run_adapter_template(const weft_run *run, const weft_text *text) {
    enum { MOST_TEMPLATE = 4 << 20 };
    const weft_tokenizer_chat *table = weft_text_chat(text);
    const char *found = NULL;
    char path[WEFT_PATH_BYTES], *source = NULL;
    size_t n = 0;
    if (run->settings.adapter_from[0] == '\0' || table == NULL || table->source == NULL) return NULL;
    if (weft_path_join(path, run->settings.adapter_from, "chat_template.jinja", NULL) != WEFT_OK ||
        weft_text_read(&source, &n, path, MOST_TEMPLATE, NULL) != WEFT_OK)
        return NULL;
    for (uint32_t i = 0; found == NULL && table->named(i) != NULL; i++)
        if (strcmp(table->source(i), source) == 0) found = table->named(i);
    free(source);
    return found;
}
