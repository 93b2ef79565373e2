/* tokens.c: adds tokens to a tokenizer, one of which may be the pad token. The tokens are inserted into the JSON of the
 * files. Both the tokenizer in memory and the saved files use this JSON, so they cannot differ. */
#include "tokenizer.h"

#include <errno.h>
#include <stdio.h>

/* Sets *out to the flags that reproduce the file's indentation, from its first lines. */
static weft_status find_indent(size_t *out, const char *path, weft_error *err) {
    char begin[64];
    FILE *file = fopen(path, "re");
    const size_t n = file == NULL ? 0 : fread(begin, 1, sizeof begin, file);
    const bool good = file != NULL && !ferror(file);
    const int why = errno;
    if (file != NULL) (void)fclose(file);
    if (!good) return weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be read: %s", path, strerror(why));
    *out = memchr(begin, '\n', n) != NULL ? JSON_INDENT(2) : JSON_COMPACT;
    return WEFT_OK;
}

/* ---- edits of the files ---- */

static bool is_added(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *content = json_string_value(json_object_get(json_array_get(list, i), "content"));
        if (content != NULL && strcmp(content, name) == 0) return true;
    }
    return false;
}

static bool add_token(json_t *root, const char *name, int32_t id) {
    json_t *list = json_object_get(root, "added_tokens");
    if (!json_is_array(list) && json_object_set_new(root, "added_tokens", list = json_array()) != 0) return false;
    if (is_added(list, name)) return true;
    return json_array_append_new(list, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (int)id, "content", name,
                                                 "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special",
                                                 1)) == 0;
}

/* Adds a token to the list by id of tokenizer_config.json, if it has one. */
static bool list_token(json_t *config, const char *name, int32_t id) {
    json_t *decoder = json_object_get(config, "added_tokens_decoder");
    char key[16];
    (void)snprintf(key, sizeof key, "%d", (int)id);
    if (!json_is_object(decoder) || json_object_get(decoder, key) != NULL) return true;
    return json_object_set_new(decoder, key,
                               json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "content", name, "lstrip", 0, "normalized",
                                         0, "rstrip", 0, "single_word", 0, "special", 1)) == 0;
}

static bool edit_for(const bpe_new_token *token, const char *file, json_t *json) {
    const char *name = token->name.bytes;
    const bool names_pad = token->is_pad && strcmp(file, "tokenizer.json") != 0 &&
                           strcmp(file, "added_tokens.json") != 0;
    if (names_pad && json_object_set_new(json, "pad_token", json_string(name)) != 0) return false;
    if (strcmp(file, "tokenizer.json") == 0) return add_token(json, name, token->id);
    if (strcmp(file, "tokenizer_config.json") == 0) return list_token(json, name, token->id);
    if (strcmp(file, "special_tokens_map.json") == 0) return true;
    return json_object_set_new(json, name, json_integer(token->id)) == 0; /* added_tokens.json */
}

bool bpe_tokens_edit(const weft_tokenizer *tokenizer, const char *file, json_t *json) {
    for (uint32_t i = 0; i < tokenizer->n_new && json_is_object(json); i++)
        if (!edit_for(&tokenizer->new_tokens[i], file, json)) return false;
    return true;
}

/* ---- contract ---- */

static bool has_file(const weft_tokenizer *tokenizer, const char *name) {
    size_t i = 0;
    while (tokenizer->files[i] != NULL && strcmp(tokenizer->files[i], name) != 0) i++;
    return tokenizer->files[i] != NULL;
}

static weft_status judge_pad(const weft_tokenizer *tokenizer, weft_error *err) {
    const char *directory = tokenizer->directory.bytes;
    if (tokenizer->special.pad >= 0)
        return weft_error_set(err, WEFT_E_USER, "the tokenizer in %s has a pad token, id %d", directory,
                              (int)tokenizer->special.pad);
    if (has_file(tokenizer, "tokenizer_config.json")) return WEFT_OK;
    return weft_error_set(err, WEFT_E_USER,
                          "%s: tokenizer_config.json is missing, which names the pad token. Fix: save the tokenizer by "
                          "AutoTokenizer.save_pretrained of transformers",
                          directory);
}

/* Chooses the id of a new token. next: the next unused id. */
static weft_status choose_id(bpe_new_token *token, const weft_tokenizer *tokenizer, int32_t *next, weft_error *err) {
    const bpe_added_token *there = bpe_added_by_content(&tokenizer->added, token->name.bytes, token->name.n);
    const int32_t piece = bpe_vocab_find(&tokenizer->model.vocab, token->name.bytes, token->name.n);
    token->id = there != NULL ? there->id : piece >= 0 ? piece : *next;
    if (there == NULL && piece < 0) (*next)++;
    else if (!token->is_pad)
        return weft_error_set(err, WEFT_E_USER, "the tokenizer in %s has %s already, with the id %d",
                              tokenizer->directory.bytes, bpe_quote(token->name.bytes, token->name.n).text,
                              (int)token->id);
    return WEFT_OK;
}

static weft_status take_names(weft_tokenizer *tokenizer, const char *const *names, uint32_t n, int32_t pad,
                              weft_error *err) {
    int32_t next = tokenizer->added.next;
    weft_status status = WEFT_OK;
    tokenizer->new_tokens = bpe_zeros(tokenizer->host, n, sizeof *tokenizer->new_tokens);
    if (tokenizer->new_tokens == NULL) return bpe_no_memory(err);
    for (uint32_t i = 0; i < n && status == WEFT_OK; i++) {
        bpe_new_token *token = &tokenizer->new_tokens[tokenizer->n_new];
        if (!bpe_text_set(&token->name, tokenizer->host, names[i], strlen(names[i]))) return bpe_no_memory(err);
        tokenizer->n_new++;
        token->is_pad = pad == (int32_t)i;
        status = choose_id(token, tokenizer, &next, err);
    }
    return status;
}

weft_status bpe_tokens_add(weft_tokenizer *tokenizer, const char *const *names, uint32_t n, int32_t pad,
                           weft_error *err) {
    weft_status status = pad >= 0 ? judge_pad(tokenizer, err) : WEFT_OK;
    if (status == WEFT_OK && tokenizer->new_tokens != NULL)
        status = weft_error_set(err, WEFT_E_HOST, "tokens can be added to a tokenizer only once");
    if (status == WEFT_OK) status = take_names(tokenizer, names, n, pad, err);
    if (status != WEFT_OK) return status;
    bpe_tokenizer_clear(tokenizer);
    return bpe_tokenizer_read(tokenizer, tokenizer->directory.bytes, err);
}

void bpe_tokens_free(weft_tokenizer *tokenizer) {
    for (uint32_t i = 0; i < tokenizer->n_new; i++)
        tokenizer->host->release(tokenizer->host, tokenizer->new_tokens[i].name.bytes);
    tokenizer->host->release(tokenizer->host, tokenizer->new_tokens);
}

typedef struct writing {
    const weft_text_sink *sink;
    bool nul_keys;
} writing;

static int put_part(const char *bytes, size_t n, void *context) {
    const writing *to = context;
    const char *end = bytes + n, *nul = NULL;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && to->nul_keys && (nul = memmem(bytes, (size_t)(end - bytes), BPE_NUL, 3)) != NULL) {
        status = to->sink->put(to->sink->context, bytes, (size_t)(nul - bytes));
        if (status == WEFT_OK) status = to->sink->put(to->sink->context, "\\u0000", 6);
        bytes = nul + 3;
    }
    if (status == WEFT_OK) status = to->sink->put(to->sink->context, bytes, (size_t)(end - bytes));
    return status == WEFT_OK ? 0 : -1;
}

weft_status bpe_tokens_file(const weft_tokenizer *tokenizer, uint32_t i, const weft_text_sink *sink, int32_t *changed,
                            weft_error *err) {
    static const char *const edited[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                         "added_tokens.json"};
    const char *name = i < BPE_MOST_FILES ? tokenizer->files[i] : NULL;
    char path[BPE_PATH_BYTES];
    json_t *json = NULL;
    writing to = {sink, false};
    weft_status status = WEFT_OK;
    size_t k = 0, indent = 0;
    while (name != NULL && k < 4 && strcmp(edited[k], name) != 0) k++;
    if (name == NULL || k == 4 || tokenizer->n_new == 0) return WEFT_OK;
    status = bpe_path(path, tokenizer->directory.bytes, name, err);
    if (status == WEFT_OK) status = bpe_json_load(&json, path, true, &to.nul_keys, err);
    if (status == WEFT_OK && !bpe_tokens_edit(tokenizer, name, json)) status = bpe_no_memory(err);
    if (status == WEFT_OK) status = find_indent(&indent, path, err);
    if (status == WEFT_OK && json_dump_callback(json, put_part, &to, indent) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be rewritten", path);
    if (status == WEFT_OK) *changed = 1;
    json_decref(json);
    return status;
}
