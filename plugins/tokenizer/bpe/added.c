/* added.c: finds added tokens in a text. */
#include "added.h"
#include "unicode.h"

typedef struct finding {
    const char *text;
    size_t n;
    size_t done; /* end of the text passed to `give` */
    bpe_part_fn *give;
    void *context;
    weft_error *err;
} finding;

const bpe_added_token *bpe_added_by_id(const bpe_added *self, int32_t id) {
    const int32_t position = id >= 0 && (size_t)id < self->n_by_id ? self->by_id[id] : -1;
    return position < 0 ? NULL : &BPE_AT(&self->tokens, bpe_added_token)[position];
}

const bpe_added_token *bpe_added_by_content(const bpe_added *self, const char *content, size_t n) {
    return bpe_added_by_id(self, bpe_vocab_find(&self->names, content, n));
}

/* Returns the start of the character before `at`; *point is -1 for a stray byte. at > 0. */
static size_t back(const char *text, size_t at, int32_t *point) {
    for (size_t length = 1; length <= 4 && length <= at; length++) {
        if (bpe_utf8(text + at - length, length, point) == length && *point >= 0) return at - length;
    }
    *point = -1;
    return at - 1;
}

static bool word_before(const finding *self, size_t at) {
    int32_t point = -1;
    if (at > 0) (void)back(self->text, at, &point);
    return bpe_is_word(point);
}

static bool word_at(const finding *self, size_t at) {
    int32_t point = -1;
    if (at < self->n) (void)bpe_utf8(self->text + at, self->n - at, &point);
    return bpe_is_word(point);
}

/* Extends a token to the left over white space that no earlier token consumed. */
static size_t stripped_begin(const finding *self, size_t begin) {
    int32_t point = 0;
    while (begin > self->done) {
        const size_t before = back(self->text, begin, &point);
        if (!bpe_is_space(point)) break;
        begin = before;
    }
    return begin < self->done ? self->done : begin;
}

static size_t stripped_end(const finding *self, size_t end) {
    int32_t point = 0;
    while (end < self->n) {
        const size_t length = bpe_utf8(self->text + end, self->n - end, &point);
        if (!bpe_is_space(point)) break;
        end += length;
    }
    return end;
}

/* Passes on a match. An earlier token may have stripped all of a white-space token, which is then dropped. */
static weft_status found(finding *self, const bpe_added_token *token, size_t begin, size_t end) {
    weft_status status = WEFT_OK;
    if (token->strip_left) begin = stripped_begin(self, begin);
    if (token->strip_right) end = stripped_end(self, end);
    if (begin >= end) return WEFT_OK;
    if (self->done < begin) status = self->give(self->context, NULL, self->done, begin, self->err);
    if (status == WEFT_OK) status = self->give(self->context, token, begin, end, self->err);
    self->done = end;
    return status;
}

/* Arguments of a search: the tokens, and the callback that treats matches as text. */
typedef struct matching {
    const bpe_added_token *tokens;
    const bpe_trie *trie;
    bpe_is_text_fn *is_text;
    void *context;
} matching;

/* Returns the index of the longest valid token at `at`, or -1. *length: bytes to advance. As in the library, a token
 * that is text hides the tokens inside it; a token with only one end in text does not. */
static int32_t match(const matching *self, const char *text, size_t n, size_t at, size_t *length) {
    size_t most = n - at;
    int32_t number = -1;
    while ((number = bpe_trie_longest(self->trie, text + at, most, length)) >= 0) {
        if (!self->tokens[number].special || self->is_text == NULL || !self->is_text(self->context, at, at + *length))
            return number;
        if (self->is_text(self->context, at, at + 1) && self->is_text(self->context, at + *length - 1, at + *length))
            return -1;
        if (self->is_text(self->context, at, at + 1)) break;
        most = *length - 1;
    }
    *length = 1;
    return -1;
}

weft_status bpe_added_each(const bpe_added *self, const bpe_trie *trie, const char *text, size_t n,
                           bpe_is_text_fn *is_text, bpe_part_fn *give, void *context, weft_error *err) {
    const matching how = {BPE_AT(&self->tokens, bpe_added_token), trie, is_text, context};
    finding work = {text, n, 0, give, context, err};
    weft_status status = WEFT_OK;
    size_t length = 0;
    for (size_t i = 0; i < n && status == WEFT_OK; i += length) {
        const bpe_added_token *token = NULL;
        int32_t number = -1;
        length = 1;
        if (!trie->starts[(unsigned char)text[i]]) continue;
        number = match(&how, text, n, i, &length);
        if (number < 0) continue;
        token = &how.tokens[number];
        if (token->single_word && (word_before(&work, i) || word_at(&work, i + length))) continue;
        status = found(&work, token, i, i + length);
    }
    if (status == WEFT_OK && work.done < n) status = give(context, NULL, work.done, n, err);
    return status;
}
