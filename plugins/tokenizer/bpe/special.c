/* special.c: reads the special tokens. The post-processor of tokenizer.json defines the ids around a text.
 * tokenizer_config.json and special_tokens_map.json name the tokens; as in transformers 5.24, add_bos_token and
 * add_eos_token have no effect. Contradictions between files are errors. */
#include "special.h"

#include <stdlib.h>

static int32_t find_token(const bpe_special_sources *from, const char *content, size_t n) {
    const bpe_added_token *token = bpe_added_by_content(from->added, content, n);
    return token != NULL ? token->id : bpe_vocab_find(&from->model->vocab, content, n);
}

/* Reads a name: a string, or an object with the string as `content`. null: none. */
static weft_status read_name(int32_t *out, const bpe_special_sources *from, const bpe_place *at, const json_t *json,
                             const char *key, weft_error *err) {
    const bpe_place here = bpe_place_key(at, key);
    const json_t *value = json_object_get(json, key);
    const char *content = NULL;
    size_t n = 0;
    if (value == NULL || json_is_null(value)) return WEFT_OK;
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (!json_is_string(value))
        return bpe_json_fail(err, &here, "must be a string, or an object with a string `content`.");
    content = json_string_value(value);
    n = json_string_length(value);
    *out = find_token(from, content, n);
    if (*out < 0)
        return bpe_json_fail(err, &here,
                             "tokenizer.json has no %s. Fix: save the tokenizer again, so that both files match.",
                             bpe_quote(content, n).text);
    return WEFT_OK;
}

/* Reads a key of either file; special_tokens_map.json takes precedence (auto.c). */
static weft_status read_names(const bpe_special_sources *from, const char *key, int32_t *out, weft_error *err) {
    const bool map = json_object_get(from->map, key) != NULL;
    return read_name(out, from, map ? &from->map_at : &from->config_at, map ? from->map : from->config, key, err);
}

/* Sets the token at one side of a text. `around`: id in the template; *id: id by name. */
static weft_status settle(int32_t *id, bool *is_auto, const bpe_special_sources *from, int32_t around, const char *name,
                          weft_error *err) {
    const bpe_place here = bpe_place_key(&from->root_at, "post_processor");
    const weft_status status = read_names(from, name, id, err);
    if (status != WEFT_OK) return status;
    if (*id < 0) *id = around;
    *is_auto = around >= 0;
    if (around >= 0 && around != *id)
        return bpe_json_fail(err, &here, "adds id %d to a text, but %s has id %d. Fix: correct one of them.", around,
                             name, *id);
    return WEFT_OK;
}

/* Checks that tokenizer.json contains the tokens of added_tokens_decoder with the same ids. Otherwise, the files are of
 * different tokenizers. */
static weft_status judge_decoder(const bpe_special_sources *from, weft_error *err) {
    const bpe_place here = bpe_place_key(&from->config_at, "added_tokens_decoder");
    json_t *decoder = json_object_get(from->config, "added_tokens_decoder");
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(decoder, key, value) {
        const bpe_place one = bpe_place_key(&here, key);
        const json_t *content = json_object_get(value, "content");
        const char *text = json_string_value(content);
        const size_t n = json_string_length(content);
        if (text == NULL) return bpe_json_fail(err, &one, "must be an object with a string `content`.");
        if (n == 0 || find_token(from, text, n) == (int32_t)strtol(key, NULL, 10)) continue;
        return bpe_json_fail(err, &one,
                             "tokenizer.json has no %s with this id. Fix: save the tokenizer again, so that both "
                             "files match.",
                             bpe_quote(text, n).text);
    }
    return WEFT_OK;
}

/* true would turn every special token into text. */
static weft_status judge_split(const bpe_special_sources *from, weft_error *err) {
    const bpe_place here = bpe_place_key(&from->config_at, "split_special_tokens");
    if (!json_is_true(json_object_get(from->config, "split_special_tokens"))) return WEFT_OK;
    return bpe_json_fail(err, &here, "true is not supported. Fix: set it to false.");
}

static weft_status judge_ids(const bpe_special_sources *from, const bpe_template *around, weft_error *err) {
    const bpe_place here = bpe_place_key(&from->root_at, "post_processor");
    const int32_t ids[2] = {around->before, around->after};
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        if (ids[i] < 0 || bpe_added_by_id(from->added, ids[i]) != NULL ||
            bpe_vocab_piece(&from->model->vocab, ids[i], &n) != NULL)
            continue;
        return bpe_json_fail(err, &here, "adds id %d to a text, which no token has.", ids[i]);
    }
    return WEFT_OK;
}

weft_status bpe_special_read(bpe_special *self, const bpe_special_sources *from, weft_error *err) {
    const bpe_special none = {-1, -1, -1, -1, false, false};
    const bpe_place at = bpe_place_key(&from->root_at, "post_processor");
    bpe_template around = {-1, -1};
    weft_status status = bpe_template_read(&around, &at, json_object_get(from->root, "post_processor"), err);
    *self = none;
    if (status == WEFT_OK) status = judge_ids(from, &around, err);
    if (status == WEFT_OK) status = judge_decoder(from, err);
    if (status == WEFT_OK) status = judge_split(from, err);
    if (status == WEFT_OK) status = settle(&self->bos, &self->auto_bos, from, around.before, "bos_token", err);
    if (status == WEFT_OK) status = settle(&self->eos, &self->auto_eos, from, around.after, "eos_token", err);
    if (status == WEFT_OK) status = read_names(from, "pad_token", &self->pad, err);
    if (status == WEFT_OK) status = read_names(from, "unk_token", &self->unknown, err);
    if (from->model->unknown >= 0) self->unknown = from->model->unknown;
    return status;
}
