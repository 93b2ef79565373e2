/* encode.c: one call, from bytes to ids: added tokens are found, what lies between is normalized, cut and merged. */
#include "pass.h"
#include "tokenizer.h"
#include "unicode.h"

#define CHUNK 4096 /* ids that are collected before the sink gets them */

weft_status bpe_pass_drain(const bpe_pass *self, weft_error *err) {
    bpe_list *ids = &self->scratch->work.ids;
    weft_status status = WEFT_OK;
    if (ids->failed) return bpe_no_memory(err);
    if (ids->n > 0) status = self->sink->put(self->sink->context, BPE_AT(ids, int32_t), ids->n);
    ids->n = 0;
    if (status != WEFT_OK && err != NULL && err->text[0] == 0)
        (void)weft_error_set(err, status, "The ids of a text could not be taken.");
    return status;
}

static weft_status add_id(const bpe_pass *self, int32_t id, weft_error *err) {
    bpe_list *ids = &self->scratch->work.ids;
    bpe_list_add(ids, &id, 1);
    return ids->n >= CHUNK || ids->failed ? bpe_pass_drain(self, err) : WEFT_OK;
}

/* The character that the model could not write, as it stands in the text: every one of its kind fails, so the first one
 * after the beginning of this part is it, unless normalizing made it. */
static weft_status no_piece(const bpe_pass *self, weft_error *err) {
    const bpe_workspace *work = &self->scratch->work;
    const char *bytes = work->fault;
    size_t n = work->fault_bytes;
    int32_t point = 0;
    char byte = 0, name[32];
    const char *at = NULL;
    (void)bpe_utf8(bytes, n, &point);
    if (self->tokenizer->split.bytes && bpe_character_byte(point) >= 0) {
        byte = (char)bpe_character_byte(point);
        bytes = &byte;
        n = 1;
        point = -1;
    }
    if (point < 0) (void)snprintf(name, sizeof name, "byte 0x%02X", (unsigned)(unsigned char)bytes[0]);
    else (void)snprintf(name, sizeof name, "character U+%04X", (unsigned)point);
    at = memmem(self->text + self->part, self->bytes - self->part, bytes, n);
    return weft_error_set(err, WEFT_E_DATA,
                          "The %s at offset %zu of the text %s, and this tokenizer has neither a piece "
                          "for it, nor byte pieces, nor an unknown piece.",
                          name, at == NULL ? self->part : (size_t)(at - self->text),
                          at == NULL ? "(or behind it, once normalized) cannot be written" : "cannot be written");
}

static weft_status give_piece(void *context, const char *piece, size_t n, weft_error *err) {
    const bpe_pass *self = context;
    bpe_workspace *work = &self->scratch->work;
    weft_status status = WEFT_OK;
    work->fault = NULL;
    status = bpe_model_encode(&self->tokenizer->model, work, piece, n, err);
    if (status != WEFT_OK) return work->fault == NULL ? status : no_piece(self, err);
    return work->ids.n >= CHUNK || work->ids.failed ? bpe_pass_drain(self, err) : WEFT_OK;
}

/* A part of the normalized text: an added token, or what is cut and merged. */
static weft_status give_normal(void *context, const bpe_added_token *token, size_t begin, size_t end, weft_error *err) {
    bpe_pass *self = context;
    if (token != NULL) return add_id(self, token->id, err);
    return bpe_split_run(&self->tokenizer->split, &self->scratch->matcher, self->scratch->split, self->normal + begin,
                         end - begin, self->part == 0 && begin == 0, give_piece, self, err);
}

static bool always(void *context, size_t begin, size_t end) {
    (void)context;
    (void)begin;
    (void)end;
    return true;
}

/* A part of the text as it is. */
weft_status bpe_pass_part(void *context, const bpe_added_token *token, size_t begin, size_t end, weft_error *err) {
    bpe_pass *self = context;
    const weft_tokenizer *tokenizer = self->tokenizer;
    weft_status status = WEFT_OK;
    if (token != NULL) return add_id(self, token->id, err);
    self->part = begin;
    self->normal = self->text + begin;
    self->normal_bytes = end - begin;
    status = bpe_normal_run(&tokenizer->normal, &self->scratch->matcher, self->scratch->normal, &self->normal,
                            &self->normal_bytes, err);
    if (status != WEFT_OK) return status;
    return bpe_added_each(&tokenizer->added, &tokenizer->added.normalized, self->normal, self->normal_bytes,
                          self->plain ? always : self->is_text, give_normal, self, err);
}

static weft_status add_special(const bpe_pass *self, int32_t id, const char *name, weft_error *err) {
    if (id >= 0) return add_id(self, id, err);
    return weft_error_set(err, WEFT_E_USER,
                          "This tokenizer has no %s token; its tokenizer_config.json would name it as "
                          "%s_token.",
                          name[0] == 'b' ? "BOS" : "EOS", name);
}

weft_status bpe_encode(const weft_tokenizer *tokenizer, const weft_ids_sink *sink, const char *text, size_t bytes,
                       uint32_t flags, weft_error *err) {
    bpe_pass work = {.tokenizer = tokenizer, .sink = sink, .text = text, .bytes = bytes};
    weft_status status = WEFT_OK;
    work.plain = (flags & WEFT_ENCODE_PLAIN) != 0;
    work.scratch = bpe_scratch_take(tokenizer, err);
    if (work.scratch == NULL) return WEFT_E_MEMORY;
    if ((flags & WEFT_ENCODE_BOS) != 0) status = add_special(&work, tokenizer->special.bos, "bos", err);
    if (status == WEFT_OK && bytes > 0)
        status = bpe_added_each(&tokenizer->added, &tokenizer->added.as_is, text, bytes, work.plain ? always : NULL,
                                bpe_pass_part, &work, err);
    if (status == WEFT_OK && (flags & WEFT_ENCODE_EOS) != 0)
        status = add_special(&work, tokenizer->special.eos, "eos", err);
    if (status == WEFT_OK) status = bpe_pass_drain(&work, err);
    bpe_scratch_give(tokenizer, work.scratch);
    return status;
}

/* A token's text, before the decoder: an added one in the form in which it was found. Of an id that is no token's:
 * none. */
static void add_text(const weft_tokenizer *self, bpe_texts *out, int32_t id, uint32_t flags) {
    const int32_t number = id >= 0 && id < self->n_ids ? self->added_by_id[id] : -1;
    const bpe_added_token *token = number < 0 ? NULL : &BPE_AT(&self->added.tokens, bpe_added_token)[number];
    const bool join = !self->decode.joined && out->ends.n > 0;
    size_t n = 0;
    const char *bytes = bpe_vocab_piece(&self->model.vocab, id, &n);
    if (token != NULL) {
        const bpe_text *form = token->form.bytes == NULL ? &token->content : &token->form;
        if (token->special && (flags & WEFT_DECODE_KEEP_SPECIAL) == 0) return;
        bytes = form->bytes;
        n = form->n;
    }
    if (bytes == NULL) return;
    if (join) bpe_list_add(&out->bytes, " ", 1);
    bpe_list_add(&out->bytes, bytes, n);
    bpe_texts_end(out);
}

weft_status bpe_decode_ids(const weft_tokenizer *tokenizer, const weft_text_sink *sink, const int32_t *ids, size_t n,
                           uint32_t flags, weft_error *err) {
    bpe_scratch *scratch = bpe_scratch_take(tokenizer, err);
    bpe_texts *out = NULL;
    weft_status status = WEFT_OK;
    if (scratch == NULL) return WEFT_E_MEMORY;
    for (size_t i = 0; i < n; i++) add_text(tokenizer, &scratch->texts[0], ids[i], flags);
    status = bpe_decode_run(&tokenizer->decode, &scratch->matcher, scratch->texts, &out, err);
    if (status == WEFT_OK && out->bytes.n > 0) {
        status = sink->put(sink->context, BPE_AT(&out->bytes, char), out->bytes.n);
        if (status != WEFT_OK && err != NULL && err->text[0] == 0)
            (void)weft_error_set(err, status, "The decoded text could not be taken.");
    }
    bpe_scratch_give(tokenizer, scratch);
    return status;
}
