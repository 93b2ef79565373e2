/* pack.c: documents become windows of at most `context` inputs, and windows become rows: best fit, longest first. What is
 * packed depends on the documents and the context alone. */
#include "text.h"

/* Rows that still have room, by how much: a stack of rows per number of free places, and a bit per stack that is not empty,
 * so that the tightest fit is found by looking at a few words. */
typedef struct rooms {
    int64_t *top;    /* [context + 1]: row on top, -1: none */
    int64_t *below;  /* [rows]: next row of the same stack */
    uint64_t *words; /* a bit per stack */
    int64_t context;
} rooms;

static void room_push(rooms *r, int64_t row, int64_t space) {
    r->below[row] = r->top[space];
    r->top[space] = row;
    r->words[space / 64] |= (uint64_t)1 << (space % 64);
}

/* The row with the least room of at least n; -1: none. *space: its room. */
static int64_t room_pop(rooms *r, int64_t n, int64_t *space) {
    const int64_t last = r->context / 64;
    uint64_t word = r->words[n / 64] & ~(((uint64_t)1 << (n % 64)) - 1);
    int64_t at = n / 64, row = -1;
    while (word == 0 && at < last) word = r->words[++at];
    if (word == 0) return -1;
    *space = at * 64 + __builtin_ctzll(word);
    row = r->top[*space];
    r->top[*space] = r->below[row];
    if (r->top[*space] < 0) r->words[at] &= ~((uint64_t)1 << (*space % 64));
    return row;
}

/* How many windows the documents have; writes them where pieces is not NULL. */
static size_t cut(text_piece *pieces, const text_corpus *corpus, const size_t *documents, size_t n, int64_t context) {
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t begin = corpus->starts[documents[i]], targets = corpus->starts[documents[i] + 1] - begin - 1;
        for (int64_t at = 0; at < targets; at += context, out++) {
            if (pieces == NULL) continue;
            pieces[out].start = begin + at;
            pieces[out].n = (int32_t)(targets - at < context ? targets - at : context);
            pieces[out].row = -1;
        }
    }
    return out;
}

/* order: windows by length, longest first, equal ones as they came (a counting sort). */
static void sort_by_length(int64_t *order, int64_t *counts, const text_piece *pieces, size_t n, int64_t context) {
    int64_t at = 0;
    memset(counts, 0, (size_t)(context + 1) * sizeof *counts);
    for (size_t i = 0; i < n; i++) counts[pieces[i].n]++;
    for (int64_t length = context; length >= 0; length--) {
        const int64_t here = counts[length];
        counts[length] = at;
        at += here;
    }
    for (size_t i = 0; i < n; i++) order[counts[pieces[i].n]++] = (int64_t)i;
}

static size_t assign_rows(text_piece *pieces, const int64_t *order, size_t n, rooms *r) {
    size_t rows = 0;
    for (size_t i = 0; i < n; i++) {
        text_piece *piece = &pieces[order[i]];
        int64_t space = r->context, row = room_pop(r, piece->n, &space);
        if (row < 0) row = (int64_t)rows++;
        piece->row = (int32_t)row;
        if (space > piece->n) room_push(r, row, space - piece->n);
    }
    return rows;
}

/* pieces in the order of their rows, inside a row as they came. */
static void group_by_row(text_rows *out, const text_piece *pieces, size_t n) {
    memset(out->first, 0, (out->n_rows + 1) * sizeof *out->first);
    for (size_t i = 0; i < n; i++) out->first[pieces[i].row + 1]++;
    for (size_t r = 0; r < out->n_rows; r++) out->first[r + 1] += out->first[r];
    for (size_t i = 0; i < n; i++) out->pieces[out->first[pieces[i].row]++] = pieces[i];
    for (size_t r = out->n_rows; r > 0; r--) out->first[r] = out->first[r - 1];
    out->first[0] = 0;
}

static void count(text_rows *out, const text_corpus *corpus, const size_t *documents, size_t n) {
    out->info.struct_size = (uint32_t)sizeof out->info;
    out->info.documents = n;
    out->info.rows = out->n_rows;
    for (size_t i = 0; i < n; i++) {
        const int64_t ids = corpus->starts[documents[i] + 1] - corpus->starts[documents[i]];
        out->info.tokens += (uint64_t)ids;
        out->info.targets += ids > 0 ? (uint64_t)(ids - 1) : 0;
    }
}

/* Scratch of one packing, in one piece of memory. */
typedef struct scratch {
    text_piece *pieces;
    int64_t *order, *counts, *top, *below;
    uint64_t *words;
} scratch;

static void *scratch_take(scratch *out, const weft_host *host, size_t n, int64_t context) {
    const size_t places = (size_t)context + 2, words = places / 64 + 2;
    const size_t bytes = n * (sizeof *out->pieces + 16) + (2 * places + words) * 8 + 64;
    char *at = host->alloc(host, bytes, 64);
    if (at == NULL) return NULL;
    memset(at, 0, bytes);
    out->pieces = (text_piece *)(void *)at;
    out->order = (int64_t *)(void *)(at + n * sizeof *out->pieces);
    out->below = out->order + n;
    out->counts = out->below + n;
    out->top = out->counts + places;
    out->words = (uint64_t *)(void *)(out->top + places);
    memset(out->top, 0xFF, places * sizeof *out->top);
    return at;
}

weft_status text_rows_pack(text_rows *out, const weft_host *host, const text_corpus *corpus, const size_t *documents,
                           size_t n, int64_t context, weft_error *err) {
    const size_t n_pieces = cut(NULL, corpus, documents, n, context);
    text_rows rows = {.corpus = corpus, .n_pieces = n_pieces};
    scratch s;
    rooms r = {0};
    void *memory = scratch_take(&s, host, n_pieces, context);
    if (n_pieces > INT32_MAX || memory == NULL) {
        host->release(host, memory);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory to pack %zu windows", n_pieces);
    }
    (void)cut(s.pieces, corpus, documents, n, context);
    sort_by_length(s.order, s.counts, s.pieces, n_pieces, context);
    r.top = s.top;
    r.below = s.below;
    r.words = s.words;
    r.context = context;
    rows.n_rows = assign_rows(s.pieces, s.order, n_pieces, &r);
    rows.pieces = host->alloc(host, (n_pieces + 1) * sizeof *rows.pieces, 64);
    rows.first = host->alloc(host, (rows.n_rows + 2) * sizeof *rows.first, 64);
    if (rows.pieces != NULL && rows.first != NULL) {
        group_by_row(&rows, s.pieces, n_pieces);
        count(&rows, corpus, documents, n);
    }
    host->release(host, memory);
    if (rows.pieces == NULL || rows.first == NULL) {
        text_rows_free(&rows, host);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for %zu rows", rows.n_rows);
    }
    *out = rows;
    return WEFT_OK;
}

void text_rows_free(text_rows *rows, const weft_host *host) {
    host->release(host, rows->pieces);
    host->release(host, rows->first);
    memset(rows, 0, sizeof *rows);
}
