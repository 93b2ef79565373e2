/* added_read.c: reads the "added_tokens" section of tokenizer.json. The library ignores the ids of the file: it uses
 * the vocabulary's id of a known token and counts upwards for others. A different id in the file is an error. */
#include "added.h"

#include <stdlib.h>

typedef struct reading {
    bpe_added *added;
    const bpe_vocab *vocab;
    const bpe_normal *normal;
    bpe_matcher *matcher;
    int32_t next; /* id of the next token outside of the vocabulary */
} reading;

static weft_status read_keys(bpe_added_token *token, const bpe_place *at, const json_t *json, weft_error *err) {
    const bool no = false, yes = true;
    const bpe_place id = bpe_place_key(at, "id");
    weft_status status = WEFT_OK;
    if (!json_is_object(json)) return bpe_json_fail(err, at, "must be an object.");
    status = bpe_json_known(at, json, "id content single_word lstrip rstrip normalized special", err);
    if (status == WEFT_OK) status = bpe_json_id(&token->id, &id, json_object_get(json, "id"), err);
    if (status == WEFT_OK) status = bpe_json_bool(&token->single_word, at, json, "single_word", &no, err);
    if (status == WEFT_OK) status = bpe_json_bool(&token->strip_left, at, json, "lstrip", &no, err);
    if (status == WEFT_OK) status = bpe_json_bool(&token->strip_right, at, json, "rstrip", &no, err);
    if (status == WEFT_OK) status = bpe_json_bool(&token->normalized, at, json, "normalized", &yes, err);
    if (status == WEFT_OK) status = bpe_json_bool(&token->special, at, json, "special", &no, err);
    return status;
}

static weft_status judge_id(reading *self, const bpe_added_token *token, const bpe_place *at, const char *content,
                            size_t n, weft_error *err) {
    const int32_t known = bpe_vocab_find(self->vocab, content, n);
    size_t taken_n = 0;
    const char *taken = bpe_vocab_piece(self->vocab, token->id, &taken_n);
    if (known >= 0 && known != token->id)
        return bpe_json_fail(err, at, "%s has id %d here and %d in model.vocab.", bpe_quote(content, n).text, token->id,
                             known);
    if (known >= 0) return WEFT_OK;
    if (taken != NULL)
        return bpe_json_fail(err, at, "id %d of %s is used by the token %s of model.vocab.", token->id,
                             bpe_quote(content, n).text, bpe_quote(taken, taken_n).text);
    if (token->id != self->next)
        return bpe_json_fail(err, at,
                             "%s has id %d, but the next free one is %d: added tokens follow the vocabulary "
                             "without gaps and in order.",
                             bpe_quote(content, n).text, token->id, self->next);
    self->next++;
    return WEFT_OK;
}

/* Stores the normalized content if it differs from the content. */
static weft_status set_form(const reading *self, bpe_added_token *token, weft_error *err) {
    const weft_host *host = self->added->host;
    const char *text = token->content.bytes;
    size_t n = token->content.n;
    bpe_list buffers[2];
    weft_status status = WEFT_OK;
    bpe_list_init(&buffers[0], host, 1);
    bpe_list_init(&buffers[1], host, 1);
    status = bpe_normal_run(self->normal, self->matcher, buffers, &text, &n, err);
    if (status == WEFT_OK && (n != token->content.n || memcmp(text, token->content.bytes, n) != 0) &&
        !bpe_text_set(&token->form, host, text, n))
        status = bpe_no_memory(err);
    bpe_list_free(&buffers[0]);
    bpe_list_free(&buffers[1]);
    return status;
}

static weft_status index_token(reading *self, const bpe_added_token *token, int32_t number, const bpe_place *at,
                               weft_error *err) {
    const bpe_text *form = token->form.bytes == NULL ? &token->content : &token->form;
    bpe_trie *trie = token->normalized ? &self->added->normalized : &self->added->as_is;
    int32_t taken = -1;
    if (form->n == 0)
        return bpe_json_fail(err, at, "the normalizer removes all of %s, so it never matches.",
                             bpe_quote(token->content.bytes, token->content.n).text);
    if (!bpe_trie_put(trie, form->bytes, form->n, number, &taken)) return bpe_no_memory(err);
    if (taken < 0) return WEFT_OK;
    return bpe_json_fail(err, at, "%s has the same normalized text as added_tokens[%d].",
                         bpe_quote(token->content.bytes, token->content.n).text, taken);
}

static weft_status read_token(reading *self, const bpe_place *at, const json_t *json, weft_error *err) {
    bpe_added *added = self->added;
    bpe_added_token fresh = {0};
    bpe_added_token *token = NULL;
    const char *content = NULL;
    size_t n = 0;
    weft_status status = read_keys(&fresh, at, json, err);
    if (status == WEFT_OK) status = bpe_json_text(&content, &n, at, json, "content", err);
    if (status != WEFT_OK || n == 0) return status; /* an empty form never matches */
    if (bpe_added_by_id(added, fresh.id) != NULL)
        return bpe_json_fail(err, at, "id %d is used by an earlier added token.", fresh.id);
    if (bpe_added_by_content(added, content, n) != NULL)
        return bpe_json_fail(err, at, "%s is a duplicate.", bpe_quote(content, n).text);
    status = judge_id(self, &fresh, at, content, n, err);
    if (status != WEFT_OK) return status;
    bpe_list_add(&added->tokens, &fresh, 1);
    if (added->tokens.failed) return bpe_no_memory(err);
    added->by_id[fresh.id] = (int32_t)added->tokens.n - 1;
    if (!bpe_vocab_add(&added->names, fresh.id, content, n)) return bpe_no_memory(err);
    token = &BPE_AT(&added->tokens, bpe_added_token)[added->tokens.n - 1];
    if (!bpe_text_set(&token->content, added->host, content, n)) return bpe_no_memory(err);
    if (token->normalized) status = set_form(self, token, err);
    if (token->id > added->highest) added->highest = token->id;
    return status == WEFT_OK ? index_token(self, token, (int32_t)added->tokens.n - 1, at, err) : status;
}

/* Reserves memory for all valid ids. Each invalid id is reported later. */
static bool reserve(bpe_added *self, const json_t *list) {
    json_int_t highest = 0;
    size_t i = 0;
    const json_t *token = NULL;
    json_array_foreach(list, i, token) {
        const json_int_t id = json_integer_value(json_object_get(token, "id"));
        if (id > highest && id <= BPE_HIGHEST_ID) highest = id;
    }
    self->n_by_id = (size_t)highest + 1;
    self->by_id = self->host->alloc(self->host, self->n_by_id * sizeof *self->by_id, 16);
    if (self->by_id == NULL) return false;
    memset(self->by_id, 0xff, self->n_by_id * sizeof *self->by_id);
    return bpe_vocab_reserve(&self->names, json_array_size(list), (int32_t)highest);
}

weft_status bpe_added_read(bpe_added *self, const weft_host *host, const bpe_place *at, const json_t *json,
                           const bpe_vocab *vocab, const bpe_normal *normal, bpe_matcher *matcher, weft_error *err) {
    reading work = {self, vocab, normal, matcher, (int32_t)vocab->count};
    weft_status status = WEFT_OK;
    self->host = host;
    self->highest = -1;
    self->next = work.next;
    bpe_list_init(&self->tokens, host, sizeof(bpe_added_token));
    bpe_vocab_init(&self->names, host);
    bpe_trie_init(&self->as_is, host);
    bpe_trie_init(&self->normalized, host);
    if (json == NULL || json_is_null(json)) return WEFT_OK;
    if (!json_is_array(json)) return bpe_json_fail(err, at, "must be an array.");
    if (json_array_size(json) > 0 && !reserve(self, json)) return bpe_no_memory(err);
    for (size_t i = 0; i < json_array_size(json) && status == WEFT_OK; i++) {
        const bpe_place one = bpe_place_index(at, i);
        status = read_token(&work, &one, json_array_get(json, i), err);
    }
    self->next = work.next;
    return status;
}

void bpe_added_free(bpe_added *self) {
    if (self->host == NULL) return;
    for (size_t i = 0; i < self->tokens.n; i++) {
        bpe_added_token *token = &BPE_AT(&self->tokens, bpe_added_token)[i];
        self->host->release(self->host, token->content.bytes);
        self->host->release(self->host, token->form.bytes);
    }
    bpe_list_free(&self->tokens);
    bpe_vocab_free(&self->names);
    self->host->release(self->host, self->by_id);
    bpe_trie_free(&self->as_is);
    bpe_trie_free(&self->normalized);
}
