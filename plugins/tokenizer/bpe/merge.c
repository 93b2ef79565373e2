/* merge.c: merges the characters of a pre-token to ids.
 *
 * In SentencePiece style, the complete document is one pre-token. It is first split into words at boundaries that no
 * merge of the vocabulary crosses. The first merge across a boundary between two characters has a left part that ends,
 * and a right part that begins, with these characters. If no such merge exists, both sides can be merged separately
 * with the same ids. Words are looked up in a cache. A heap keeps the work for occasional long words at O(n log n). */
#include "model.h"
#include "unicode.h"

#include <stdlib.h>

typedef struct symbol {
    int32_t id;
    int32_t before; /* indices of neighbours, -1 at the ends */
    int32_t after;
    int32_t alive;
} symbol;

/* The lowest key has the lowest rank and, of equal ranks, the leftmost symbol. */
typedef struct candidate {
    uint64_t key; /* rank << 32 | index of the left symbol */
    int64_t id;   /* id of the merged pair */
} candidate;

void bpe_workspace_init(bpe_workspace *self, const weft_host *host) {
    bpe_list_init(&self->ids, host, sizeof(int32_t));
    bpe_list_init(&self->symbols, host, sizeof(symbol));
    bpe_list_init(&self->heap, host, sizeof(candidate));
    bpe_cache_init(&self->cache, host);
    self->fault = NULL;
    self->fault_bytes = 0;
}

void bpe_workspace_free(bpe_workspace *self) {
    bpe_list_free(&self->ids);
    bpe_list_free(&self->symbols);
    bpe_list_free(&self->heap);
    bpe_cache_free(&self->cache);
}

static void sift_down(candidate *heap, size_t n, size_t at) {
    const candidate moved = heap[at];
    for (size_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && heap[child + 1].key < heap[child].key) child++;
        if (moved.key <= heap[child].key) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void push(bpe_list *list, candidate moved) {
    candidate *heap = NULL;
    size_t at = list->n;
    bpe_list_add(list, &moved, 1);
    if (list->failed) return;
    heap = BPE_AT(list, candidate);
    for (; at > 0 && moved.key < heap[(at - 1) / 2].key; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = moved;
}

static candidate pop(bpe_list *list) {
    candidate *heap = BPE_AT(list, candidate);
    const candidate top = heap[0];
    heap[0] = heap[--list->n];
    if (list->n > 0) sift_down(heap, list->n, 0);
    return top;
}

static bool candidate_at(candidate *out, const bpe_model *model, const symbol *symbols, int32_t i) {
    const bpe_merge *merge = NULL;
    if (i < 0 || symbols[i].after < 0) return false;
    merge = bpe_model_merge(model, symbols[i].id, symbols[symbols[i].after].id);
    if (merge == NULL) return false;
    out->key = (uint64_t)merge->rank << 32 | (uint32_t)i;
    out->id = merge->id;
    return true;
}

static void fill_heap(const bpe_model *model, bpe_workspace *work) {
    candidate next;
    for (size_t i = 0; i < work->symbols.n; i++) {
        if (candidate_at(&next, model, BPE_AT(&work->symbols, symbol), (int32_t)i)) bpe_list_add(&work->heap, &next, 1);
    }
    for (size_t i = work->heap.n / 2; i-- > 0;) sift_down(BPE_AT(&work->heap, candidate), work->heap.n, i);
}

/* Merges until the heap is empty. An entry with a changed pair is dropped, unless the new pair merges to the same
 * token: as in the library, it is then merged at the rank of the old entry. */
static void merge_all(const bpe_model *model, bpe_workspace *work) {
    symbol *symbols = BPE_AT(&work->symbols, symbol);
    candidate next;
    while (work->heap.n > 0 && !work->heap.failed) {
        const candidate top = pop(&work->heap);
        const int32_t left = (int32_t)(uint32_t)top.key;
        const int32_t right = symbols[left].after;
        if (symbols[left].alive == 0 || !candidate_at(&next, model, symbols, left) || next.id != top.id) continue;
        symbols[left].id = (int32_t)top.id;
        symbols[left].after = symbols[right].after;
        symbols[right].alive = 0;
        if (symbols[left].after >= 0) symbols[symbols[left].after].before = left;
        if (candidate_at(&next, model, symbols, symbols[left].before)) push(&work->heap, next);
        if (candidate_at(&next, model, symbols, left)) push(&work->heap, next);
    }
}

static void add_symbol(bpe_list *symbols, int32_t id) {
    const int32_t i = (int32_t)symbols->n;
    const symbol fresh = {id, i - 1, i + 1, 1};
    bpe_list_add(symbols, &fresh, 1);
}

/* Adds the byte tokens of a character. Returns false if one is missing. */
static bool add_bytes(const bpe_model *model, bpe_list *symbols, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (model->bytes[(unsigned char)bytes[i]] < 0) return false;
    }
    for (size_t i = 0; i < n; i++) add_symbol(symbols, model->bytes[(unsigned char)bytes[i]]);
    return true;
}

/* Adds the symbols of a word. As in the library, an unknown character is added only before the next known one, so byte
 * tokens in between precede it. */
static weft_status fill_symbols(const bpe_model *model, bpe_workspace *work, const char *word, size_t n) {
    size_t length = 0;
    bool waiting = false;
    for (size_t i = 0; i < n; i += length) {
        int32_t point = 0, id = 0;
        length = bpe_utf8(word + i, n - i, &point);
        id = bpe_model_character(model, point, word + i, length);
        if (id >= 0) {
            if (waiting) add_symbol(&work->symbols, model->unknown);
            waiting = false;
            add_symbol(&work->symbols, id);
        } else if (!add_bytes(model, &work->symbols, word + i, length)) {
            if (model->unknown < 0) {
                work->fault = word + i;
                work->fault_bytes = length;
                return WEFT_E_DATA;
            }
            if (waiting && !model->fuse_unknown) add_symbol(&work->symbols, model->unknown);
            waiting = true;
        }
    }
    if (waiting) add_symbol(&work->symbols, model->unknown);
    if (work->symbols.n > 0 && !work->symbols.failed) BPE_AT(&work->symbols, symbol)[work->symbols.n - 1].after = -1;
    return WEFT_OK;
}

static weft_status encode_word(const bpe_model *model, bpe_workspace *work, const char *word, size_t n,
                               weft_error *err) {
    const size_t before = work->ids.n;
    const uint64_t hash = n <= BPE_CACHE_WORD ? bpe_hash(word, n) : 0;
    weft_status status = WEFT_OK;
    size_t n_ids = 0;
    const int32_t *known = n <= BPE_CACHE_WORD ? bpe_cache_find(&work->cache, hash, word, n, &n_ids) : NULL;
    if (known != NULL) {
        bpe_list_add(&work->ids, known, n_ids);
        return WEFT_OK;
    }
    if (n > INT32_MAX) return weft_error_set(err, WEFT_E_DATA, "A pre-token of %zu bytes is too long to be merged.", n);
    bpe_list_clear(&work->symbols);
    bpe_list_clear(&work->heap);
    status = fill_symbols(model, work, word, n);
    if (status != WEFT_OK) return status;
    if (!work->symbols.failed) fill_heap(model, work);
    if (!work->heap.failed) merge_all(model, work);
    for (size_t i = 0; i < work->symbols.n; i++) {
        const symbol *at = &BPE_AT(&work->symbols, symbol)[i];
        if (at->alive != 0) bpe_list_add(&work->ids, &at->id, 1);
    }
    if (work->symbols.failed || work->heap.failed || work->ids.failed) return bpe_no_memory(err);
    bpe_cache_keep(&work->cache, hash, word, n, BPE_AT(&work->ids, int32_t) + before, work->ids.n - before);
    return WEFT_OK;
}

/* Returns the end of the word at `from`. The character before a boundary must be known, since unknown ones are added
 * with their successors. */
static size_t word_end(const bpe_model *model, const char *text, size_t n, size_t from) {
    int32_t left = 0, right = 0;
    size_t at = from, length = bpe_utf8(text + at, n - at, &left);
    bool known = bpe_model_character(model, left, text + at, length) >= 0;
    while (at + length < n) {
        at += length;
        length = bpe_utf8(text + at, n - at, &right);
        if (known && bpe_model_cuts(model, left, right)) return at;
        known = bpe_model_character(model, right, text + at, length) >= 0;
        left = right;
    }
    return n;
}

weft_status bpe_model_encode(const bpe_model *self, bpe_workspace *work, const char *text, size_t n, weft_error *err) {
    weft_status status = WEFT_OK;
    const int32_t whole = self->ignore_merges ? bpe_vocab_find(&self->vocab, text, n) : -1;
    if (whole >= 0) {
        bpe_list_add(&work->ids, &whole, 1);
        return WEFT_OK;
    }
    if (!self->cut || n <= 64) return encode_word(self, work, text, n, err);
    for (size_t from = 0, end = 0; from < n && status == WEFT_OK; from = end) {
        end = word_end(self, text, n, from);
        status = encode_word(self, work, text + from, end - from, err);
    }
    return status;
}
