/* split.c: runs the steps depth-first: each result passes through all remaining steps before the next result is split
 * off. */
#include "split.h"
#include "unicode.h"

typedef struct run {
    const bpe_split *split;
    bpe_matcher *matcher;
    bpe_list *buffers; /* one per step: its output */
    bpe_piece_fn *give;
    void *context;
} run;

/* A running BPE_SPLIT. `held`: a range with an unknown end. */
typedef struct cutter {
    const run *run;
    size_t step;
    const char *text;
    bool first;
    bool holds;
    bool held_is_match;
    size_t begin;
    size_t end;
} cutter;

static weft_status run_from(const run *self, size_t step, const char *text, size_t n, bool first, weft_error *err);

static weft_status emit(const cutter *self, size_t begin, size_t end, weft_error *err) {
    return run_from(self->run, self->step + 1, self->text + begin, end - begin, self->first && begin == 0, err);
}

static weft_status flush(cutter *self, weft_error *err) {
    const bool holds = self->holds;
    self->holds = false;
    return holds ? emit(self, self->begin, self->end, err) : WEFT_OK;
}

static weft_status hold(cutter *self, size_t begin, size_t end, bool is_match, weft_error *err) {
    const weft_status status = flush(self, err);
    self->holds = true;
    self->held_is_match = is_match;
    self->begin = begin;
    self->end = end;
    return status;
}

/* Joins a match with the text before it, unless that is a match too. */
static weft_status with_previous(cutter *self, size_t begin, size_t end, bool is_match, weft_error *err) {
    if (!is_match || self->held_is_match || !self->holds) return hold(self, begin, end, is_match, err);
    self->end = end;
    self->held_is_match = true;
    return WEFT_OK;
}

/* Joins a match with the text after it, unless that is a match too. */
static weft_status with_next(cutter *self, size_t begin, size_t end, bool is_match, weft_error *err) {
    if (is_match) return hold(self, begin, end, true, err);
    if (!self->holds) return emit(self, begin, end, err);
    self->end = end;
    return flush(self, err);
}

static weft_status contiguous(cutter *self, size_t begin, size_t end, bool is_match, weft_error *err) {
    if (!self->holds || self->held_is_match != is_match) return hold(self, begin, end, is_match, err);
    self->end = end;
    return WEFT_OK;
}

static weft_status cut_visit(void *context, size_t begin, size_t end, bool is_match, weft_error *err) {
    cutter *self = context;
    const bpe_split_step *step = &BPE_AT(&self->run->split->steps, bpe_split_step)[self->step];
    const bool is = is_match != step->invert;
    switch (step->behaviour) {
    case BPE_REMOVED: return is ? WEFT_OK : emit(self, begin, end, err);
    case BPE_MERGED_WITH_PREVIOUS: return with_previous(self, begin, end, is, err);
    case BPE_MERGED_WITH_NEXT: return with_next(self, begin, end, is, err);
    case BPE_CONTIGUOUS: return contiguous(self, begin, end, is, err);
    default: return emit(self, begin, end, err);
    }
}

static void add_bytes(bpe_list *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char character[4];
        bpe_list_add(out, character, bpe_utf8_put(character, bpe_byte_character((unsigned char)text[i])));
    }
}

static void add_meta(const bpe_split_step *step, bpe_list *out, const char *text, size_t n, bool first) {
    const bpe_text *mark = &step->replacement;
    const bool marked = bpe_text_begins(text, n, mark) || (n > 0 && text[0] == ' ');
    size_t from = 0;
    if (!marked && (step->scheme == BPE_ALWAYS || (step->scheme == BPE_FIRST && first)))
        bpe_list_add(out, mark->bytes, mark->n);
    for (size_t i = 0; i < n; i++) {
        if (text[i] != ' ') continue;
        bpe_list_add(out, text + from, i - from);
        bpe_list_add(out, mark->bytes, mark->n);
        from = i + 1;
    }
    bpe_list_add(out, text + from, n - from);
}

static weft_status run_split(const run *self, size_t step, const char *text, size_t n, bool first, weft_error *err) {
    const bpe_split_step *at = &BPE_AT(&self->split->steps, bpe_split_step)[step];
    cutter work = {self, step, text, first, false, false, 0, 0};
    weft_status status = bpe_pattern_each(&at->pattern, self->matcher, text, n, cut_visit, &work, err);
    return status == WEFT_OK ? flush(&work, err) : status;
}

static weft_status run_from(const run *self, size_t step, const char *text, size_t n, bool first, weft_error *err) {
    const bpe_split_step *at = NULL;
    bpe_list *out = NULL;
    if (n == 0) return WEFT_OK;
    if (step == self->split->steps.n) return self->give(self->context, text, n, err);
    at = &BPE_AT(&self->split->steps, bpe_split_step)[step];
    out = &self->buffers[step];
    if (at->kind == BPE_SPLIT) return run_split(self, step, text, n, first, err);
    if (at->kind == BPE_SPACE && text[0] == ' ') return run_from(self, step + 1, text, n, first, err);
    bpe_list_clear(out);
    if (at->kind == BPE_SPACE) {
        bpe_list_add(out, " ", 1);
        bpe_list_add(out, text, n);
    } else if (at->kind == BPE_BYTES) {
        add_bytes(out, text, n);
    } else {
        add_meta(at, out, text, n, first);
    }
    if (out->failed) return bpe_no_memory(err);
    return run_from(self, step + 1, out->data, out->n, first, err);
}

weft_status bpe_split_run(const bpe_split *self, bpe_matcher *matcher, bpe_list *buffers, const char *text, size_t n,
                          bool first, bpe_piece_fn *give, void *context, weft_error *err) {
    const run work = {self, matcher, buffers, give, context};
    return run_from(&work, 0, text, n, first, err);
}
