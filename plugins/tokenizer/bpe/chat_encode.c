/* chat_encode.c: encodes a rendered conversation to ids, each with the number of its answer.
 *
 * The text is encoded as any other, except that a special token must be written by the template: at least one byte is
 * from the template, and every other byte is from a role. The position of each id in the text follows from the number
 * of bytes that the ids represent. If the sum differs from the length of the text (a normalizer changed it), positions
 * follow from the ids of prefixes of the text that end where an answer begins or ends. */
#include "chat_ids.h"
#include "pass.h"
#include "unicode.h"

typedef struct place {
    size_t begin, end; /* range of an id in the text */
} place;

typedef struct conversation {
    bpe_pass pass; /* must be first: callbacks cast to it */
    const chat_text *chat;
    bool special;    /* special tokens in messages count */
    bpe_list ids;    /* int32_t */
    bpe_list places; /* place */
    bpe_list prefix; /* int32_t: ids of a prefix */
    bpe_list marks;  /* uint32_t: marks of the current normalized range */
    const char *marked;
} conversation;

static weft_status collect(void *context, const int32_t *ids, size_t n) {
    bpe_list *list = context;
    bpe_list_add(list, ids, n);
    return list->failed ? WEFT_E_MEMORY : WEFT_OK;
}

static bool any_given(const uint32_t *marks, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++)
        if (JINJA_ORIGIN(marks[i]) != JINJA_TEMPLATE) return true;
    return false;
}

/* Returns true if the template wrote the bytes; they may include the role of a message. */
static bool is_written(const uint32_t *marks, size_t begin, size_t end) {
    bool any = false;
    for (size_t i = begin; i < end; i++) {
        const bool template = JINJA_ORIGIN(marks[i]) == JINJA_TEMPLATE;
        if (!template && (marks[i] & JINJA_LABEL) == 0) return false;
        any = any || template;
    }
    return any;
}

static bool given_in_text(void *context, size_t begin, size_t end) {
    const conversation *self = context;
    return !self->special && !is_written(self->chat->text.marks, begin, end);
}

/* Returns the normalized length of the first n bytes of the range. */
static size_t normal_length(conversation *self, size_t n) {
    bpe_list buffers[2];
    weft_error err = WEFT_ERROR_INIT;
    const char *text = self->pass.text + self->pass.part;
    weft_status status = WEFT_OK;
    for (int i = 0; i < 2; i++) bpe_list_init(&buffers[i], self->pass.tokenizer->host, 1);
    status = bpe_normal_run(&self->pass.tokenizer->normal, &self->pass.scratch->matcher, buffers, &text, &n, &err);
    for (int i = 0; i < 2; i++) bpe_list_free(&buffers[i]);
    if (status != WEFT_OK) self->marks.failed = true;
    return n;
}

/* Computes the marks of the normalized range. Each run of equal marks ends at the normalized length of the prefix that
 * it ends. */
static void mark_normal(conversation *self) {
    const uint32_t *marks = self->chat->text.marks + self->pass.part;
    const size_t n = self->pass.bytes;
    size_t begin = 0, done = 0;
    bpe_list_clear(&self->marks);
    if (!bpe_list_reserve(&self->marks, self->pass.normal_bytes)) return;
    for (size_t i = 1; self->pass.part + i <= n && done < self->pass.normal_bytes; i++) {
        const bool last = self->pass.part + i == n;
        size_t to = self->pass.normal_bytes;
        if (!last && marks[i] == marks[begin]) continue;
        if (!last) to = normal_length(self, i);
        for (; done < to && done < self->pass.normal_bytes; done++) bpe_list_add(&self->marks, &marks[begin], 1);
        begin = i;
    }
    self->marked = self->pass.normal;
}

static bool given_in_normal(void *context, size_t begin, size_t end) {
    conversation *self = context;
    if (self->special) return false;
    if (self->marked != self->pass.normal) mark_normal(self);
    return end > self->marks.n || !is_written(BPE_AT(&self->marks, uint32_t), begin, end);
}

/* Returns the number of original bytes that an id represents, if no normalizer changed them. */
static size_t id_bytes(const weft_tokenizer *self, int32_t id) {
    const int32_t number = self->added_by_id[id];
    size_t n = 0, bytes = 0;
    const char *piece = bpe_vocab_piece(&self->model.vocab, id, &n);
    if (number >= 0) {
        const bpe_added_token *token = &BPE_AT(&self->added.tokens, bpe_added_token)[number];
        if (!token->normalized || token->form.bytes == NULL) return token->content.n;
        piece = token->form.bytes; /* normalized form, with its blank */
        n = token->form.n;
    }
    if (number < 0 && piece != NULL && n == 6 && self->model.byte_fallback && memcmp(piece, "<0x", 3) == 0) return 1;
    for (size_t i = 0, length = 0; piece != NULL && i < n; i += length) {
        int32_t point = 0;
        length = bpe_utf8(piece + i, n - i, &point);
        bytes += self->split.bytes || point == 0x2581 ? 1 : length;
    }
    return bytes;
}

/* Computes positions from byte counts. Returns false if the sum shows that the text was changed. */
static bool places_by_bytes(conversation *self, size_t first, size_t begin, size_t end) {
    const int32_t *ids = BPE_AT(&self->ids, int32_t);
    size_t sum = 0, at = begin, lead = 0;
    for (size_t i = first; i < self->ids.n; i++) sum += id_bytes(self->pass.tokenizer, ids[i]);
    if (sum < end - begin || sum > end - begin + 1) return false;
    lead = sum - (end - begin); /* a blank was prepended */
    for (size_t i = first; i < self->ids.n; i++) {
        const size_t n = id_bytes(self->pass.tokenizer, ids[i]) - (i == first ? lead : 0);
        const place one = {at, at + (n > 0 ? n : 1)}; /* a prepended blank gets the position of the next token */
        bpe_list_add(&self->places, &one, 1);
        at += n;
    }
    return true;
}

/* Counts the ids of the range before position `to`; *exact: the next id begins at `to`. */
static weft_status ids_before(conversation *self, size_t first, size_t begin, size_t to, size_t *count, bool *exact,
                              weft_error *err) {
    const weft_ids_sink sink = {&self->prefix, collect};
    bpe_pass pass = self->pass;
    size_t k = 0;
    weft_status status = WEFT_OK;
    bpe_list_clear(&self->prefix);
    pass.sink = &sink;
    pass.is_text = NULL;
    pass.plain = false;
    status = bpe_pass_part(&pass, NULL, begin, to, err);
    if (status == WEFT_OK) status = bpe_pass_drain(&pass, err);
    while (k < self->prefix.n && first + k < self->ids.n &&
           BPE_AT(&self->prefix, int32_t)[k] == BPE_AT(&self->ids, int32_t)[first + k])
        k++;
    *exact = k == self->prefix.n;
    *count = k;
    return status;
}

/* Splits the range at answer boundaries. Each id gets the section that contains it, and also the next section if it
 * extends over the boundary. */
static weft_status places_by_prefix(conversation *self, size_t first, size_t begin, size_t end, weft_error *err) {
    const int32_t *answers = self->chat->answers;
    size_t from = begin, at = first;
    for (size_t i = begin + 1; i <= end; i++) {
        size_t count = self->ids.n - first;
        bool exact = true;
        if (i < end && answers[i] == answers[from]) continue;
        if (i < end) {
            const weft_status status = ids_before(self, first, begin, i, &count, &exact, err);
            if (status != WEFT_OK) return status;
        }
        if (at > first && self->places.n > at) BPE_AT(&self->places, place)[at].end = i;
        for (size_t k = self->places.n; k < first + count + !exact && k < self->ids.n; k++) {
            const place one = {from, i};
            bpe_list_add(&self->places, &one, 1);
        }
        at = first + count;
        from = i;
    }
    while (self->places.n < self->ids.n && !self->places.failed) {
        const place one = {from, end};
        bpe_list_add(&self->places, &one, 1);
    }
    return WEFT_OK;
}

static weft_status give_part(void *context, const bpe_added_token *token, size_t begin, size_t end, weft_error *err) {
    conversation *self = context;
    const size_t first = self->ids.n, bytes = self->pass.bytes;
    weft_status status = WEFT_OK;
    self->marked = NULL;
    self->pass.bytes = end;
    status = bpe_pass_part(&self->pass, token, begin, end, err);
    if (status == WEFT_OK) status = bpe_pass_drain(&self->pass, err);
    self->pass.bytes = bytes;
    if (status != WEFT_OK) return status;
    if (token != NULL) {
        const place one = {begin, end};
        bpe_list_add(&self->places, &one, 1);
    } else if (!places_by_bytes(self, first, begin, end)) status = places_by_prefix(self, first, begin, end, err);
    return self->ids.failed || self->places.failed || self->marks.failed ? bpe_no_memory(err) : status;
}

static bool is_template_space(const conversation *self, place at) {
    if (any_given(self->chat->text.marks, at.begin, at.end)) return false;
    for (size_t i = at.begin; i < at.end; i++)
        if (memchr(" \t\r\n", self->chat->text.bytes[i], 4) == NULL) return false;
    return true;
}

static bool is_end(const conversation *self, size_t i) {
    const place at = BPE_AT(&self->places, place)[i];
    return bpe_is_special(self->pass.tokenizer, BPE_AT(&self->ids, int32_t)[i]) &&
           is_written(self->chat->text.marks, at.begin, at.end);
}

/* True if the special token begins turns: the text begins with it, possibly after others, and so does the turn of the
 * answer whose first id is `first`. */
static bool is_opener(const conversation *self, size_t first, int32_t id) {
    const place *places = BPE_AT(&self->places, place);
    const int32_t *ids = BPE_AT(&self->ids, int32_t);
    const uint32_t *marks = self->chat->text.marks, turn = JINJA_BLOCK(marks[places[first].begin]);
    size_t lead = 0, i = first;
    while (lead < first && is_end(self, lead) && ids[lead] != id) lead++;
    if (turn == 0 || lead == first || ids[lead] != id) return false;
    while (i > 0 && JINJA_BLOCK(marks[places[i - 1].begin]) == turn && ids[i - 1] != id) i--;
    return i > 0 && JINJA_BLOCK(marks[places[i - 1].begin]) == turn;
}

/* True if the special token ended the message before the answer whose first id is `first`: the answer's turn begins
 * with it, and no other special token ended that message. */
static bool ended_previous(const conversation *self, size_t first, int32_t id) {
    const place *places = BPE_AT(&self->places, place);
    const uint32_t *marks = self->chat->text.marks, turn = JINJA_BLOCK(marks[places[first].begin]);
    size_t i = first;
    while (i > 0 && JINJA_BLOCK(marks[places[i - 1].begin]) == turn) i--;
    return turn != 0 && i > 0 && BPE_AT(&self->ids, int32_t)[i] == id && !is_end(self, i - 1);
}

/* Returns the index of the special token after `last`, with only white space between, or -1. */
static int64_t next_end(const conversation *self, const int32_t *answers, size_t last) {
    for (size_t at = last + 1; at < self->ids.n && answers[at] < 0; at++) {
        if (is_end(self, at)) return (int64_t)at;
        if (!is_template_space(self, BPE_AT(&self->places, place)[at])) break;
    }
    return -1;
}

/* Finds the end token of an answer: a special token that the template wrote after `given`, the last id with a byte of
 * the record. It is at or before `last`; or it is the next one after `last`, if it does not begin the next turn as it
 * began the answer's. If there are both, the first one ends a part of the answer (its calls) if the second one also
 * ended the previous message. Returns its index, or -1. */
static int64_t find_end(const conversation *self, const int32_t *answers, size_t first, int64_t given, size_t last) {
    const int64_t next = next_end(self, answers, last);
    const int32_t id = next < 0 ? -1 : BPE_AT(&self->ids, int32_t)[next];
    const bool opens = next >= 0 && is_opener(self, first, id);
    size_t at = last;
    while ((int64_t)at > given && !is_end(self, at) && at > 0) at--;
    if ((int64_t)at <= given || !is_end(self, at)) return opens ? -1 : next;
    return next >= 0 && !opens && ended_previous(self, first, id) ? next : (int64_t)at;
}

/* Marks the end token of the answer first .. last and ends the answer there, unless the answer has text after it. */
static void mark_end(const conversation *self, int32_t *answers, size_t first, size_t last) {
    const place *places = BPE_AT(&self->places, place);
    const int32_t answer = answers[last];
    int64_t given = (int64_t)last, end = 0;
    if (self->chat->blocks) { /* a block may include white space after the end token */
        while (last > first && !is_end(self, last) && is_template_space(self, places[last])) last--;
        if (is_end(self, last)) answers[last] |= WEFT_CHAT_END;
        return;
    }
    while (given >= (int64_t)first && (!any_given(self->chat->text.marks, places[given].begin, places[given].end) ||
                                       is_written(self->chat->text.marks, places[given].begin, places[given].end)))
        given--;
    end = find_end(self, answers, first, given >= (int64_t)first ? given : (int64_t)first - 1, last);
    if (end < 0) return;
    for (size_t i = (size_t)end + 1; i <= last; i++)
        if (!is_template_space(self, places[i])) return;
    for (size_t i = (size_t)end + 1; i <= last; i++) answers[i] = -1;
    for (size_t i = last + 1; i < (size_t)end; i++) answers[i] = answer;
    answers[end] = answer | WEFT_CHAT_END;
}

static void mark_answers(const conversation *self, int32_t *answers) {
    int32_t most = -1;
    for (size_t i = 0; i < self->ids.n; i++) {
        const place at = BPE_AT(&self->places, place)[i];
        answers[i] = -1;
        for (size_t b = at.begin; b < at.end && b < self->pass.bytes && answers[i] < 0; b++)
            answers[i] = self->chat->answers[b];
        if (answers[i] > most) most = answers[i];
    }
    for (size_t i = 0, last = 0; i < self->ids.n; i++) {
        if (answers[i] < 0 || (answers[i] & WEFT_CHAT_END) != 0) continue;
        for (last = i; last + 1 < self->ids.n && answers[last + 1] == answers[i];) last++;
        mark_end(self, answers, i, last);
        i = last;
    }
}

static weft_status give(const conversation *self, const weft_chat_sink *sink, weft_error *err) {
    const weft_host *host = self->pass.tokenizer->host;
    int32_t *answers = host->alloc(host, (self->ids.n + 1) * sizeof *answers, 16);
    weft_status status = WEFT_OK;
    if (answers == NULL) return bpe_no_memory(err);
    mark_answers(self, answers);
    if (self->ids.n > 0) status = sink->put(sink->context, BPE_AT(&self->ids, int32_t), answers, self->ids.n);
    if (status != WEFT_OK && err != NULL && err->text[0] == 0)
        (void)weft_error_set(err, status, "The sink of ids failed.");
    host->release(host, answers);
    return status;
}

static weft_status encode_text(const weft_tokenizer *tokenizer, const weft_chat_sink *sink, const chat_text *chat,
                               bool special, weft_error *err) {
    conversation self = {.chat = chat, .special = special};
    const weft_ids_sink ids = {&self.ids, collect};
    weft_status status = WEFT_OK;
    bpe_list_init(&self.ids, tokenizer->host, sizeof(int32_t));
    bpe_list_init(&self.places, tokenizer->host, sizeof(place));
    bpe_list_init(&self.prefix, tokenizer->host, sizeof(int32_t));
    bpe_list_init(&self.marks, tokenizer->host, sizeof(uint32_t));
    self.pass.tokenizer = tokenizer;
    self.pass.sink = &ids;
    self.pass.text = chat->text.bytes;
    self.pass.bytes = chat->text.n;
    self.pass.is_text = given_in_normal;
    self.pass.scratch = bpe_scratch_take(tokenizer, err);
    if (self.pass.scratch == NULL) return WEFT_E_MEMORY;
    if (chat->text.n > 0)
        status = bpe_added_each(&tokenizer->added, &tokenizer->added.as_is, chat->text.bytes, chat->text.n,
                                given_in_text, give_part, &self, err);
    if (status == WEFT_OK) status = give(&self, sink, err);
    bpe_scratch_give(tokenizer, self.pass.scratch);
    bpe_list_free(&self.ids);
    bpe_list_free(&self.places);
    bpe_list_free(&self.prefix);
    bpe_list_free(&self.marks);
    return status;
}

weft_status bpe_chat_encode(const weft_tokenizer *tokenizer, const weft_chat_sink *sink, const weft_chat *chat,
                            weft_error *err) {
    chat_text text;
    weft_status status = chat_render(&text, &tokenizer->chat, chat, true, err);
    if (status != WEFT_OK) return status;
    status = encode_text(tokenizer, sink, &text, (chat->flags & WEFT_CHAT_SPECIAL) != 0, err);
    chat_text_free(&text, tokenizer->host);
    return status;
}

weft_status bpe_chat_render(const weft_tokenizer *tokenizer, const weft_text_sink *sink, const weft_chat *chat,
                            weft_error *err) {
    chat_text text;
    weft_status status = chat_render(&text, &tokenizer->chat, chat, false, err);
    if (status != WEFT_OK) return status;
    if (text.text.n > 0) status = sink->put(sink->context, text.text.bytes, text.text.n);
    if (status != WEFT_OK && err != NULL && err->text[0] == 0)
        (void)weft_error_set(err, status, "The sink of text failed.");
    chat_text_free(&text, tokenizer->host);
    return status;
}

weft_status bpe_chat_check(const weft_tokenizer *tokenizer, const char *named, weft_error *err) {
    return chat_check(&tokenizer->chat, named, err);
}

int32_t bpe_special_id(const weft_tokenizer *self, const char *name, size_t n) {
    const bpe_added_token *token = bpe_added_by_content(&self->added, name, n);
    return token == NULL ? -1 : token->id;
}

int32_t bpe_is_special(const weft_tokenizer *self, int32_t id) {
    const int32_t number = id >= 0 && id < self->n_ids ? self->added_by_id[id] : -1;
    return number >= 0 && BPE_AT(&self->added.tokens, bpe_added_token)[number].special;
}
