/* special.c: tokenizer.json says what stands around a text; tokenizer_config.json says what the tokens are called and
 * may say add_bos_token and add_eos_token, which then count, as in `transformers`; special_tokens_map.json names what
 * tokenizer_config.json does not. Files that contradict each other are refused.
 */
#include "special.h"

#include <stdlib.h>

static int32_t find_token(const bpe_special_sources *from, const char *content, size_t n) {
    const bpe_added_token *token = bpe_added_by_content(from->added, content, n);
    return token != NULL ? token->id : bpe_vocab_find(&from->model->vocab, content, n);
}

/* A name is a text, or an object with its text as `content`; null is none. */
static weft_status read_name(int32_t *out, const bpe_special_sources *from, const bpe_place *at, const json_t *json,
                             const char *key, weft_error *err) {
    const bpe_place here = bpe_place_key(at, key);
    const json_t *value = json_object_get(json, key);
    const char *content = NULL;
    size_t n = 0;
    if (value == NULL || json_is_null(value)) return WEFT_OK;
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (!json_is_string(value)) return bpe_json_fail(err, &here, "must be a text, or an object with a text `content`.");
    content = json_string_value(value);
    n = json_string_length(value);
    *out = find_token(from, content, n);
    if (*out < 0)
        return bpe_json_fail(err, &here, "tokenizer.json has no %s; save the tokenizer again so that both files agree.",
                             bpe_quote(content, n).text);
    return WEFT_OK;
}

static weft_status read_names(const bpe_special_sources *from, const char *key, int32_t *out, weft_error *err) {
    weft_status status = read_name(out, from, &from->config_at, from->config, key, err);
    if (status == WEFT_OK && *out < 0) status = read_name(out, from, &from->map_at, from->map, key, err);
    return status;
}

/* One side of the text: `around` from the template, `id` by name. */
static weft_status settle(int32_t *id, bool *is_auto, const bpe_special_sources *from, int32_t around,
                          const char *names[2], weft_error *err) {
    const json_t *asked = json_object_get(from->config, names[1]);
    const bpe_place here = bpe_place_key(&from->root_at, "post_processor");
    const bool no = false;
    weft_status status = read_names(from, names[0], id, err);
    if (status == WEFT_OK) status = bpe_json_bool(is_auto, &from->config_at, from->config, names[1], &no, err);
    if (status != WEFT_OK) return status;
    if (*id < 0) *id = around;
    if (json_is_boolean(asked)) {
        *is_auto = *is_auto && *id >= 0; /* asked for without a name: nothing is added */
        return WEFT_OK;
    }
    *is_auto = around >= 0;
    if (around >= 0 && around != *id)
        return bpe_json_fail(err, &here,
                             "puts id %d beside a text, but %s has id %d; correct one of them, or set %s in "
                             "tokenizer_config.json.",
                             around, names[0], *id, names[1]);
    return WEFT_OK;
}

/* Tokens that tokenizer_config.json would add are those of tokenizer.json, or the two are not of one tokenizer. */
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
        if (text == NULL) return bpe_json_fail(err, &one, "must be an object with a text `content`.");
        if (n == 0 || find_token(from, text, n) == (int32_t)strtol(key, NULL, 10)) continue;
        return bpe_json_fail(err, &one,
                             "tokenizer.json has no %s with this id; save the tokenizer again so that both "
                             "files agree.",
                             bpe_quote(text, n).text);
    }
    return WEFT_OK;
}

/* `transformers` lets this key overrule the pre-tokenizer; a file where the two differ would have two meanings. */
static weft_status judge_space(const bpe_special_sources *from, weft_error *err) {
    const bpe_place here = bpe_place_key(&from->config_at, "add_prefix_space");
    const json_t *asked = json_object_get(from->config, "add_prefix_space");
    const json_t *own = json_object_get(json_object_get(from->root, "pre_tokenizer"), "add_prefix_space");
    if (!json_is_boolean(asked) || !json_is_boolean(own) || json_is_true(asked) == json_is_true(own)) return WEFT_OK;
    return bpe_json_fail(err, &here, "differs from pre_tokenizer.add_prefix_space of tokenizer.json; make both alike.");
}

static weft_status judge_ids(const bpe_special_sources *from, const bpe_template *around, weft_error *err) {
    const bpe_place here = bpe_place_key(&from->root_at, "post_processor");
    const int32_t ids[2] = {around->before, around->after};
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        if (ids[i] < 0 || bpe_added_by_id(from->added, ids[i]) != NULL ||
            bpe_vocab_piece(&from->model->vocab, ids[i], &n) != NULL)
            continue;
        return bpe_json_fail(err, &here, "puts id %d beside a text, which no piece has.", ids[i]);
    }
    return WEFT_OK;
}

weft_status bpe_special_read(bpe_special *self, const bpe_special_sources *from, weft_error *err) {
    const bpe_special none = {-1, -1, -1, -1, false, false};
    const bpe_place at = bpe_place_key(&from->root_at, "post_processor");
    const char *bos_names[2] = {"bos_token", "add_bos_token"}, *eos_names[2] = {"eos_token", "add_eos_token"};
    bpe_template around = {-1, -1};
    weft_status status = bpe_template_read(&around, &at, json_object_get(from->root, "post_processor"), err);
    *self = none;
    if (status == WEFT_OK) status = judge_ids(from, &around, err);
    if (status == WEFT_OK) status = judge_decoder(from, err);
    if (status == WEFT_OK) status = judge_space(from, err);
    if (status == WEFT_OK) status = settle(&self->bos, &self->auto_bos, from, around.before, bos_names, err);
    if (status == WEFT_OK) status = settle(&self->eos, &self->auto_eos, from, around.after, eos_names, err);
    if (status == WEFT_OK) status = read_names(from, "pad_token", &self->pad, err);
    if (status == WEFT_OK) status = read_names(from, "unk_token", &self->unknown, err);
    if (from->model->unknown >= 0) self->unknown = from->model->unknown;
    return status;
}
