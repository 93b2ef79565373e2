/* encode.c: encodes bytes to ids: finds added tokens, and normalizes, splits and merges the text between them. Decodes
 * ids. */
#include "cut.h"
#include "pass.h"
#include "tokenizer.h"
#include "unicode.h"

#include <unistd.h>

#define CHUNK 4096 /* ids collected before a call of the sink */

weft_status bpe_pass_drain(const bpe_pass *self, weft_error *err) {
    bpe_list *ids = &self->scratch->work.ids;
    weft_status status = WEFT_OK;
    if (ids->failed) return bpe_no_memory(err);
    if (ids->n > 0) status = self->sink->put(self->sink->context, BPE_AT(ids, int32_t), ids->n);
    ids->n = 0;
    if (status != WEFT_OK && err != NULL && err->text[0] == 0)
        (void)weft_error_set(err, status, "The sink of ids failed.");
    return status;
}

static weft_status add_id(const bpe_pass *self, int32_t id, weft_error *err) {
    bpe_list *ids = &self->scratch->work.ids;
    bpe_list_add(ids, &id, 1);
    return ids->n >= CHUNK || ids->failed ? bpe_pass_drain(self, err) : WEFT_OK;
}

/* Reports a character that cannot be encoded. Every occurrence of it fails, so the first one in this range is the
 * cause, unless the normalizer made the character. */
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
                          "The %s at offset %zu of the text %s, and this tokenizer has neither a token "
                          "for it, nor byte tokens, nor an unknown token.",
                          name, at == NULL ? self->part : (size_t)(at - self->text),
                          at == NULL ? "(or after it, once normalized) cannot be encoded" : "cannot be encoded");
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

/* Encodes a range of the normalized text: an added token, or text. */
static weft_status give_normal(void *context, const bpe_added_token *token, size_t begin, size_t end, weft_error *err) {
    bpe_pass *self = context;
    if (token != NULL) return add_id(self, token->id, err);
    return bpe_split_run(&self->tokenizer->split, &self->scratch->matcher, self->scratch->split, self->normal + begin,
                         end - begin, self->part == 0 && begin == 0 && !self->continues, give_piece, self, err);
}

static bool always(void *context, size_t begin, size_t end) {
    (void)context;
    (void)begin;
    (void)end;
    return true;
}

/* Encodes a range of the original text. */
weft_status bpe_pass_part(void *context, const bpe_added_token *token, size_t begin, size_t end, weft_error *err) {
    bpe_pass *self = context;
    const weft_tokenizer *tokenizer = self->tokenizer;
    bpe_normal normal = tokenizer->normal;
    weft_status status = WEFT_OK;
    if (token != NULL) return add_id(self, token->id, err);
    if (self->continues && begin == 0 && normal.steps.n > 0 &&
        BPE_AT(&normal.steps, bpe_normal_step)->kind == BPE_PREPEND) {
        normal.steps.data = BPE_AT(&normal.steps, bpe_normal_step) + 1; /* prepend only at the start of a text */
        normal.steps.n--;
    }
    self->part = begin;
    self->normal = self->text + begin;
    self->normal_bytes = end - begin;
    status = bpe_normal_run(&normal, &self->scratch->matcher, self->scratch->normal, &self->normal, &self->normal_bytes,
                            err);
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

static weft_status encode_text(bpe_pass *work, weft_error *err) {
    if (work->bytes == 0) return WEFT_OK;
    return bpe_added_each(&work->tokenizer->added, &work->tokenizer->added.as_is, work->text, work->bytes,
                          work->plain ? always : NULL, bpe_pass_part, work, err);
}

/* ---- long texts, in parallel ---- */

/* PART_BYTES: minimal size of a range. A text shorter than LEAST_LONG is not split. A group has at most GROUP
 * ranges, and the ids of GROUP_BYTES of text and one range are in memory at once. */
enum { PART_BYTES = 1 << 16, LEAST_LONG = 1 << 19, GROUP = 64, GROUP_BYTES = GROUP * PART_BYTES };

typedef struct long_part {
    size_t begin, end;
    bpe_list ids; /* int32_t */
    weft_status status;
} long_part;

typedef struct long_text {
    bpe_pass *whole;
    long_part parts[GROUP];
} long_text;

static weft_status keep_ids(void *context, const int32_t *ids, size_t n) {
    bpe_list *list = context;
    bpe_list_add(list, ids, n);
    return list->failed ? WEFT_E_MEMORY : WEFT_OK;
}

static void encode_long_part(int64_t index, void *context) {
    long_text *all = context;
    long_part *part = &all->parts[index];
    const weft_ids_sink sink = {&part->ids, keep_ids};
    weft_error err = WEFT_ERROR_INIT;
    bpe_pass work = *all->whole;
    work.sink = &sink;
    work.text += part->begin;
    work.bytes = part->end - part->begin;
    work.continues = part->begin > 0;
    work.scratch = bpe_scratch_take(work.tokenizer, &err);
    part->status = work.scratch == NULL ? WEFT_E_MEMORY : encode_text(&work, &err);
    if (part->status == WEFT_OK) part->status = bpe_pass_drain(&work, &err);
    if (work.scratch != NULL) bpe_scratch_give(work.tokenizer, work.scratch);
}

/* Encodes a group of ranges from *at on, and sets *at to their end. The ids of a range are in memory until its end. A
 * text that cannot be divided is one range of any length, so its ids go to the sink directly. */
static weft_status encode_group(long_text *all, bpe_cut_kind kind, size_t *at, weft_error *err) {
    const bpe_pass *whole = all->whole;
    const weft_host *host = whole->tokenizer->host;
    const size_t first = *at;
    int64_t n = 0;
    weft_status status = WEFT_OK;
    for (; n < GROUP && *at < whole->bytes && *at - first < GROUP_BYTES; n++) {
        long_part *part = &all->parts[n];
        part->begin = *at;
        part->end = bpe_cut_find(whole->tokenizer, kind, whole->text, whole->bytes, *at + PART_BYTES);
        *at = part->end;
        bpe_list_init(&part->ids, host, sizeof(int32_t));
    }
    if (first == 0 && n == 1 && *at == whole->bytes) return encode_text(all->whole, err);
    host->parallel_for(host, n, encode_long_part, all);
    for (int64_t i = 0; i < n; i++) {
        const bpe_list *ids = &all->parts[i].ids;
        if (status == WEFT_OK) status = all->parts[i].status;
        if (status == WEFT_OK && ids->n > 0) {
            status = whole->sink->put(whole->sink->context, BPE_AT(ids, int32_t), ids->n);
            if (status != WEFT_OK) (void)weft_error_set(err, status, "The sink of ids failed.");
        }
        bpe_list_free(&all->parts[i].ids);
    }
    return status;
}

/* Encodes a long text in ranges. After a failure, encodes it again without splitting, to report the correct offset. */
static weft_status encode_long(bpe_pass *work, bpe_cut_kind kind, weft_error *err) {
    long_text *all = bpe_zeros(work->tokenizer->host, 1, sizeof *all);
    weft_status status = all == NULL ? bpe_no_memory(err) : bpe_pass_drain(work, err);
    if (all != NULL) all->whole = work;
    for (size_t at = 0; at < work->bytes && status == WEFT_OK;) status = encode_group(all, kind, &at, err);
    work->tokenizer->host->release(work->tokenizer->host, all);
    return status == WEFT_E_DATA && err != NULL && err->text[0] == 0 ? encode_text(work, err) : status;
}

/* Only the main thread may call parallel_for. */
static bpe_cut_kind cut_of_text(const bpe_pass *work) {
    if (work->bytes < (size_t)LEAST_LONG || gettid() != getpid()) return BPE_CUT_NONE;
    return bpe_cut_of(work->tokenizer);
}

weft_status bpe_encode(const weft_tokenizer *tokenizer, const weft_ids_sink *sink, const char *text, size_t bytes,
                       uint32_t flags, weft_error *err) {
    bpe_pass work = {.tokenizer = tokenizer, .sink = sink, .text = text, .bytes = bytes};
    bpe_cut_kind kind = BPE_CUT_NONE;
    weft_status status = WEFT_OK;
    work.plain = (flags & WEFT_ENCODE_PLAIN) != 0;
    work.scratch = bpe_scratch_take(tokenizer, err);
    if (work.scratch == NULL) return WEFT_E_MEMORY;
    if ((flags & WEFT_ENCODE_BOS) != 0) status = add_special(&work, tokenizer->special.bos, "bos", err);
    kind = cut_of_text(&work);
    if (status == WEFT_OK) status = kind == BPE_CUT_NONE ? encode_text(&work, err) : encode_long(&work, kind, err);
    if (status == WEFT_OK && (flags & WEFT_ENCODE_EOS) != 0)
        status = add_special(&work, tokenizer->special.eos, "eos", err);
    if (status == WEFT_OK) status = bpe_pass_drain(&work, err);
    bpe_scratch_give(tokenizer, work.scratch);
    return status;
}

/* Adds a token's text before decoding; for an added token, its normalized form. An unknown id adds nothing. */
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
            (void)weft_error_set(err, status, "The sink of text failed.");
    }
    bpe_scratch_give(tokenizer, scratch);
    return status;
}
