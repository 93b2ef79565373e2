/* host/program/tokens.c: tokens added to a tokenizer, and rows of the model for them. The ids depend only on the
 * tokenizer, so every command that opens the run gets the same model. */
#include "program/sections.h"

#include "base/alloc.h"
#include "base/file.h"
#include "model/config_json.h"
#include "base/text.h"
#include "plugin/enter.h"

#include <jansson.h>
#include <stdlib.h>

enum { MOST_BYTES = 256 << 20 };

/* ---- tokenizer files ---- */

weft_status weft_token_files_pad(char **out, const char *directory, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    bool is_there = false;
    json_t *config = NULL;
    const json_t *found = NULL;
    const char *name = NULL;
    weft_status status = weft_path_join(path, directory, "tokenizer_config.json", err);
    *out = NULL;
    if (status == WEFT_OK) status = weft_file_exists(&is_there, path, err);
    if (status == WEFT_OK && is_there) status = weft_json_read(&config, path, JSON_DECODE_INT_AS_REAL, err);
    found = json_object_get(config, "pad_token");
    name = json_string_value(json_is_object(found) ? json_object_get(found, "content") : found);
    if (name != NULL) *out = weft_strdup(name);
    json_decref(config);
    return status;
}

static bool lists_token(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *other = json_string_value(json_object_get(json_array_get(list, i), "content"));
        if (other != NULL && strcmp(other, name) == 0) return true;
    }
    return false;
}

static char *list_more(const json_t *before, const json_t *list, const char *pad) {
    char *all = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(list, i), "content"));
        char *longer = NULL;
        if (name == NULL || (pad != NULL && strcmp(name, pad) == 0) || lists_token(before, name)) continue;
        longer = weft_text_of("%s%s%s", all == NULL ? "" : all, all == NULL ? "" : ",", name);
        free(all);
        all = longer;
    }
    return all;
}

/* Reads only this key: jansson refuses objects that have "\u0000" as a key, as some vocabularies do. */
static weft_status read_added(json_t **out, const char *directory, const char *text, size_t bytes, weft_error *err) {
    size_t n = 0;
    const char *value = weft_config_json_value(text, bytes, "added_tokens", &n);
    json_error_t why = {.text = "no array"};
    *out = value == NULL ? json_array() : json_loadb(value, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    if (json_is_array(*out) || json_is_null(*out)) return WEFT_OK;
    return weft_error_set(err, WEFT_E_DATA, "%s/tokenizer.json: added_tokens is not valid: %s. Allowed: an array",
                          directory, why.text);
}

/* *text is unchanged if the file does not exist. */
static weft_status read_tokenizer(char **text, size_t *bytes, const char *directory, weft_error *err) {
    char path[WEFT_PATH_BYTES];
    bool is_there = false;
    weft_status status = weft_path_join(path, directory, "tokenizer.json", err);
    if (status == WEFT_OK) status = weft_file_exists(&is_there, path, err);
    return status == WEFT_OK && is_there ? weft_text_read(text, bytes, path, MOST_BYTES, err) : status;
}

/* The files are mostly the same, and large. */
weft_status weft_token_files_more(char **out, const char *had, const char *has, weft_error *err) {
    char *own_pad = NULL, *pad = NULL, *text[2] = {NULL, NULL};
    json_t *added[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};
    weft_status status = weft_token_files_pad(&own_pad, had, err);
    *out = NULL;
    if (status == WEFT_OK && own_pad == NULL) status = weft_token_files_pad(&pad, has, err);
    if (status == WEFT_OK) status = read_tokenizer(&text[0], &bytes[0], had, err);
    if (status == WEFT_OK) status = read_tokenizer(&text[1], &bytes[1], has, err);
    if (status == WEFT_OK && text[0] != NULL && text[1] != NULL &&
        (bytes[0] != bytes[1] || memcmp(text[0], text[1], bytes[0]) != 0)) {
        status = read_added(&added[0], had, text[0], bytes[0], err);
        if (status == WEFT_OK) status = read_added(&added[1], has, text[1], bytes[1], err);
        if (status == WEFT_OK) *out = list_more(added[0], added[1], pad);
    }
    for (int i = 0; i < 2; i++) {
        json_decref(added[i]);
        free(text[i]);
    }
    free(own_pad);
    free(pad);
    return status;
}

/* Fails if the tokens of the run's adapter have other ids in this run. An adapter's directory has the tokenizer of its
 * training run. */
static weft_status check_adapter(const weft_run *run, weft_error *err) {
    const weft_tokenizer_settings *keys = &run->settings.tokenizer;
    const char *from = run->settings.adapter_from;
    char *more = NULL;
    size_t n = 0;
    weft_status status = WEFT_OK;
    if (from[0] == '\0' || run->parts[WEFT_PART_TOKENIZER].loaded == NULL) return WEFT_OK;
    status = weft_token_files_more(&more, keys->path[0] != '\0' ? keys->path : run->settings.model.path, from, err);
    if (status != WEFT_OK || more == NULL) return status;
    n = strlen(more);
    if (strncmp(keys->add, more, n) == 0 && (keys->add[n] == '\0' || keys->add[n] == ',')) status = WEFT_OK;
    else if (keys->add[0] != '\0')
        status =
            weft_config_reject(run->config, "tokenizer", "add", err,
                               "does not begin with the added tokens of the adapter in %s, which would change their "
                               "ids. Fix: set add = %s, followed by others",
                               from, more);
    else
        status = weft_config_reject(run->config, "adapter", run->settings.adapter.use[0] != '\0' ? "use" : "from", err,
                                    "(%s) was made with tokens that this run's tokenizer does not have. Fix: set "
                                    "[tokenizer] add = %s, or path = %s",
                                    from, more, from);
    free(more);
    return status;
}

/* ---- the list of added tokens ---- */

/* Tokens to add; the pad token is the last one. */
typedef struct token_list {
    char *text; /* storage of the names */
    const char **names;
    uint32_t n;
    int32_t pad; /* its index; -1: not added */
} token_list;

bool weft_tokens_wanted(const weft_run *run) {
    return run->settings.tokenizer.pad == WEFT_PAD_ADD || run->settings.tokenizer.add[0] != '\0';
}

/* Returns the id of a token; -1: it does not exist, or the tokenizer cannot look it up. */
static int32_t find_token(const weft_text *text, const char *name) {
    const weft_tokenizer_special *special = weft_text_extension(text, WEFT_TOKENIZER_SPECIAL);
    if (special == NULL || !WEFT_WHOLE(special, weft_tokenizer_special)) return -1;
    return special->id(text->tokenizer, name, strlen(name));
}

static bool is_listed(const token_list *list, const char *name) {
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->names[i], name) == 0) return true;
    return false;
}

static weft_status take_names(token_list *list, const weft_text *text, const weft_run *run, weft_error *err) {
    char *rest = list->text;
    while (rest != NULL && *rest != '\0') {
        const char *name = strsep(&rest, ",");
        const int32_t id = find_token(text, name);
        if (id >= 0)
            return weft_config_reject(run->config, "tokenizer", "add", err,
                                      "names %s, which the tokenizer in %s has already, with the id %d. Fix: remove it",
                                      name, text->directory, (int)id);
        if (is_listed(list, name))
            return weft_config_reject(run->config, "tokenizer", "add", err, "names %s twice. Fix: remove one of them",
                                      name);
        list->names[list->n++] = name;
    }
    return WEFT_OK;
}

/* Appends the pad token, unless the tokenizer already has it as its pad token. */
static weft_status take_pad(token_list *list, const weft_text *text, int32_t pad, const weft_run *run,
                            weft_error *err) {
    const char *name = run->settings.tokenizer.pad_token;
    if (*name == '\0') return weft_config_reject(run->config, "tokenizer", "pad_token", err, "is empty");
    if (pad >= 0 && pad == find_token(text, name)) return WEFT_OK;
    if (pad >= 0)
        return weft_config_reject(run->config, "tokenizer", "pad", err,
                                  "adds a pad token, and the tokenizer in %s already has another one than %s, id %d. "
                                  "Fix: remove the line",
                                  text->directory, name, (int)pad);
    if (is_listed(list, name))
        return weft_config_reject(run->config, "tokenizer", "add", err,
                                  "names %s, which pad = add adds. Fix: remove it from the list", name);
    list->pad = (int32_t)list->n;
    list->names[list->n++] = name;
    return WEFT_OK;
}

/* ---- adding them to the tokenizer ---- */

/* Reports a failure at [tokenizer] pad if only the pad token is added, else at add. */
static weft_status add_list(weft_text *text, const token_list *list, const weft_run *run, weft_error *err) {
    const weft_tokenizer_add *add = weft_text_extension(text, WEFT_TOKENIZER_ADD);
    const char *key = list->pad == 0 ? "pad" : "add";
    weft_error why = WEFT_ERROR_INIT;
    weft_status status = WEFT_OK;
    if (add == NULL || !WEFT_WHOLE(add, weft_tokenizer_add))
        return weft_config_reject(run->config, "tokenizer", key, err,
                                  "needs added tokens, which the tokenizer plugin %s does not support. Fix: remove the "
                                  "line",
                                  weft_run_id(run, WEFT_PART_TOKENIZER));
    WEFT_PLUGIN_CALL(status, add, add, &why, text->tokenizer, list->names, list->n, list->pad);
    if (status == WEFT_OK) text->added = add;
    if (status == WEFT_OK) return WEFT_OK;
    status = weft_plugin_blame(text->plugin, status, &why);
    if (status != WEFT_E_USER) return weft_error_set(err, status, "%s", why.text);
    return weft_config_reject(run->config, "tokenizer", key, err, "failed: %s", why.text);
}

weft_status weft_tokens_add(weft_text *text, const weft_run *run, weft_error *err) {
    const weft_tokenizer_settings *keys = &run->settings.tokenizer;
    weft_tokenizer_info info = {.struct_size = (uint32_t)sizeof info, .pad = -1};
    token_list list = {.text = weft_strdup(keys->add), .pad = -1};
    size_t most = 2;
    weft_status status = WEFT_OK;
    for (const char *at = keys->add; *at != '\0'; at++) most += *at == ',';
    list.names = weft_alloc(most, sizeof *list.names);
    WEFT_PLUGIN_NOTIFY(text->plugin, info, text->tokenizer, &info);
    text->own_ids = info.vocab_size;
    status = take_names(&list, text, run, err);
    if (status == WEFT_OK && keys->pad == WEFT_PAD_ADD) status = take_pad(&list, text, info.pad, run, err);
    if (status == WEFT_OK && list.n > 0) status = add_list(text, &list, run, err);
    free((void *)list.names);
    free(list.text);
    return status;
}

/* ---- rows of the model ---- */

/* Returns vocab_size of config.json; 0: missing. */
static int64_t read_rows(const char *directory) {
    char *path = weft_text_of("%s/config.json", directory);
    json_t *config = NULL;
    int64_t rows = 0;
    (void)weft_json_read(&config, path, 0, NULL);
    rows = (int64_t)json_integer_value(json_object_get(config, "vocab_size"));
    json_decref(config);
    free(path);
    return rows;
}

static void log_pad(const weft_run *run, const weft_text *text, int64_t rows) {
    if (run->settings.tokenizer.pad != WEFT_PAD_ADD || text->added == NULL) return;
    weft_log(run->host, WEFT_LOG_INFO, "the pad token %s has the id %d: %s", run->settings.tokenizer.pad_token,
             (int)text->info.pad,
             text->info.pad >= rows ? "embeddings (and a head of its own) get a row for it, the mean of the others"
                                    : "the model has a row for it, which stays as it is");
}

/* The ids are consecutive. */
static void log_tokens(const weft_run *run, const weft_text *text, int64_t rows) {
    const char *list = run->settings.tokenizer.add, *last = strrchr(list, ',');
    int32_t n = 1;
    if (list[0] == '\0') return;
    for (const char *at = list; *at != '\0'; at++) n += *at == ',';
    const int64_t end = find_token(text, last == NULL ? list : last + 1) + 1, first = end - n;
    const int64_t grown = end <= rows ? 0 : end - (first > rows ? first : rows);
    char spare[100] = "", ids[64];
    if (grown < n)
        (void)snprintf(spare, sizeof spare, "; the model has rows for %s, which begin as they are",
                       grown == 0 ? "them" : "the others");
    if (n == 1) (void)snprintf(ids, sizeof ids, "id %lld", (long long)first);
    else (void)snprintf(ids, sizeof ids, "ids %lld to %lld", (long long)first, (long long)end - 1);
    weft_log(run->host, WEFT_LOG_INFO,
             "%d token%s added, with the %s: %lld more row%s of embeddings (and "
             "of a head of its own), the mean of those there are%s",
             (int)n, n == 1 ? " is" : "s are", ids, (long long)grown, grown == 1 ? "" : "s", spare);
}

/* Sets run->vocabulary. If the tokenizer has more ids than the model has rows, a later check reports it. */
static void take_vocabulary(weft_run *run, const weft_text *text, int64_t rows) {
    const int64_t ids = text->info.vocab_size;
    const bool has_pad = run->settings.tokenizer.pad == WEFT_PAD_ADD;
    if (text->own_ids > rows) return;
    run->vocabulary.before = rows;
    run->vocabulary.rows = ids > rows ? ids : rows;
    run->vocabulary.pad = has_pad ? text->info.pad : -1;
    log_tokens(run, text, rows);
    log_pad(run, text, rows);
}

weft_status weft_tokens_settle(weft_run *run, weft_error *err) {
    weft_text text = {0};
    int64_t rows = 0;
    weft_status status = check_adapter(run, err);
    if (status != WEFT_OK || !weft_tokens_wanted(run)) return status;
    if (run->parts[WEFT_PART_MODEL].loaded == NULL || run->parts[WEFT_PART_TOKENIZER].loaded == NULL) return WEFT_OK;
    status = weft_text_open(&text, run, err);
    if (status != WEFT_OK) return status;
    rows = read_rows(run->settings.model.path);
    if (rows >= 1) take_vocabulary(run, &text, rows);
    else
        status = weft_config_reject(run->config, "tokenizer", run->settings.tokenizer.add[0] != '\0' ? "add" : "pad",
                                    err, "needs added tokens, and %s/config.json has no vocab_size",
                                    run->settings.model.path);
    weft_text_close(&text);
    return status;
}
