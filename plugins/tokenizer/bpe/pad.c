/* pad.c: a pad token for a tokenizer that has none. What its files say of one is put into them once, as JSON, and both
 * the tokenizer in memory and what is saved come of that, so that they cannot differ.
 */
#include "tokenizer.h"

#include <stdio.h>

/* The first lines of a file tell how it is written. */
static int indent_of(const char *path) {
    char begin[64];
    FILE *file = fopen(path, "re");
    const size_t n = file == NULL ? 0 : fread(begin, 1, sizeof begin, file);
    if (file != NULL) (void)fclose(file);
    return memchr(begin, '\n', n) != NULL ? JSON_INDENT(2) : JSON_COMPACT;
}

/* ---- what the files say ---- */

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

/* tokenizer_config.json names the token, and may list all of them by id. */
static bool name_token(json_t *config, const char *name, int32_t id) {
    json_t *decoder = json_object_get(config, "added_tokens_decoder");
    char key[16];
    (void)snprintf(key, sizeof key, "%d", (int)id);
    if (json_object_set_new(config, "pad_token", json_string(name)) != 0) return false;
    if (!json_is_object(decoder) || json_object_get(decoder, key) != NULL) return true;
    return json_object_set_new(decoder, key,
                               json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "content", name, "lstrip", 0, "normalized",
                                         0, "rstrip", 0, "single_word", 0, "special", 1)) == 0;
}

bool bpe_pad_edit(const weft_tokenizer *tokenizer, const char *file, json_t *json) {
    const char *name = tokenizer->pad.bytes;
    const int32_t id = tokenizer->pad_id;
    if (name == NULL || !json_is_object(json)) return true;
    if (strcmp(file, "tokenizer.json") == 0) return add_token(json, name, id);
    if (strcmp(file, "tokenizer_config.json") == 0) return name_token(json, name, id);
    if (strcmp(file, "special_tokens_map.json") == 0)
        return json_object_set_new(json, "pad_token", json_string(name)) == 0;
    return json_object_set_new(json, name, json_integer(id)) == 0; /* added_tokens.json */
}

/* ---- the contract ---- */

static bool has_file(const weft_tokenizer *tokenizer, const char *name) {
    size_t i = 0;
    while (tokenizer->files[i] != NULL && strcmp(tokenizer->files[i], name) != 0) i++;
    return tokenizer->files[i] != NULL;
}

weft_status bpe_pad_add(weft_tokenizer *tokenizer, const char *name, weft_error *err) {
    const size_t n = strlen(name);
    const bpe_added_token *token = bpe_added_by_content(&tokenizer->added, name, n);
    const int32_t piece = bpe_vocab_find(&tokenizer->model.vocab, name, n);
    if (tokenizer->special.pad >= 0)
        return weft_error_set(err, WEFT_E_USER, "the tokenizer in %s has a pad token, id %d",
                              tokenizer->directory.bytes, (int)tokenizer->special.pad);
    if (!has_file(tokenizer, "tokenizer_config.json"))
        return weft_error_set(err, WEFT_E_USER,
                              "%s: no tokenizer_config.json is there, which names a pad token; save the tokenizer with "
                              "AutoTokenizer.save_pretrained of transformers",
                              tokenizer->directory.bytes);
    tokenizer->pad_id = token != NULL ? token->id : piece >= 0 ? piece : tokenizer->added.next;
    if (!bpe_text_set(&tokenizer->pad, tokenizer->host, name, n)) return bpe_no_memory(err);
    bpe_tokenizer_clear(tokenizer);
    return bpe_tokenizer_read(tokenizer, tokenizer->directory.bytes, err);
}

static int put_part(const char *bytes, size_t n, void *context) {
    const weft_text_sink *sink = context;
    return sink->put(sink->context, bytes, n) == WEFT_OK ? 0 : -1;
}

weft_status bpe_pad_file(const weft_tokenizer *tokenizer, uint32_t i, const weft_text_sink *sink, int32_t *changed,
                         weft_error *err) {
    static const char *const edited[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                         "added_tokens.json"};
    const char *name = i < BPE_MOST_FILES ? tokenizer->files[i] : NULL;
    char path[BPE_PATH_BYTES];
    json_t *json = NULL;
    weft_status status = WEFT_OK;
    size_t k = 0;
    while (name != NULL && k < 4 && strcmp(edited[k], name) != 0) k++;
    if (name == NULL || k == 4 || tokenizer->pad.bytes == NULL) return WEFT_OK;
    status = bpe_path(path, tokenizer->directory.bytes, name, err);
    if (status == WEFT_OK) status = bpe_json_load(&json, path, true, err);
    if (status == WEFT_OK && !bpe_pad_edit(tokenizer, name, json)) status = bpe_no_memory(err);
    if (status == WEFT_OK && json_dump_callback(json, put_part, (void *)(uintptr_t)sink, (size_t)indent_of(path)) != 0)
        status = weft_error_set(err, WEFT_E_SYSTEM, "%s: cannot be written anew", path);
    if (status == WEFT_OK) *changed = 1;
    json_decref(json);
    return status;
}
