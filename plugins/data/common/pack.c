/* pack.c: splits documents into chunks of at most `context` inputs, and packs chunks into sequences: best fit, longest
 * first. The result depends only on the documents and the context. */
#include "rows.h"

/* Sequences with free positions: one stack per number of free positions, and a bit per non-empty stack. A few word
 * operations find the tightest fit. */
typedef struct rooms {
    int64_t *top;    /* [context + 1]: top sequence, -1: empty */
    int64_t *below;  /* [rows]: next sequence of the same stack */
    uint64_t *words; /* one bit per stack */
    int64_t context;
} rooms;

static void room_push(rooms *r, int64_t row, int64_t space) {
    r->below[row] = r->top[space];
    r->top[space] = row;
    r->words[space / 64] |= (uint64_t)1 << (space % 64);
}

/* Removes and returns the sequence with the fewest free positions, at least n; -1: no such sequence. *space: its free
 * positions. */
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

/* Counts the chunks of the documents, and writes them unless `pieces` is NULL. */
static size_t cut(data_piece *pieces, const data_corpus *corpus, const size_t *documents, size_t n, int64_t context) {
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t begin = data_corpus_start(corpus, documents[i]);
        const int64_t targets = data_corpus_start(corpus, documents[i] + 1) - begin - 1;
        for (int64_t at = 0; at < targets; at += context, out++) {
            if (pieces == NULL) continue;
            pieces[out].start = begin + at;
            pieces[out].n = (int32_t)(targets - at < context ? targets - at : context);
            pieces[out].row = -1;
        }
    }
    return out;
}

/* Sorts chunk indices by length, longest first, by a stable counting sort. */
static void sort_by_length(int64_t *order, int64_t *counts, const data_piece *pieces, size_t n, int64_t context) {
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

static size_t assign_rows(data_piece *pieces, const int64_t *order, size_t n, rooms *r) {
    size_t rows = 0;
    for (size_t i = 0; i < n; i++) {
        data_piece *piece = &pieces[order[i]];
        int64_t space = r->context, row = room_pop(r, piece->n, &space);
        if (row < 0) row = (int64_t)rows++;
        piece->row = (int32_t)row;
        if (space > piece->n) room_push(r, row, space - piece->n);
    }
    return rows;
}

/* Sorts chunks by sequence, stably. */
static void group_by_row(data_rows *out, const data_piece *pieces, size_t n) {
    memset(out->first, 0, (out->n_rows + 1) * sizeof *out->first);
    for (size_t i = 0; i < n; i++) out->first[pieces[i].row + 1]++;
    for (size_t r = 0; r < out->n_rows; r++) out->first[r + 1] += out->first[r];
    for (size_t i = 0; i < n; i++) out->pieces[out->first[pieces[i].row]++] = pieces[i];
    for (size_t r = out->n_rows; r > 0; r--) out->first[r] = out->first[r - 1];
    out->first[0] = 0;
}

static void count(data_rows *out, const data_corpus *corpus, const size_t *documents, size_t n) {
    out->info.documents = n;
    out->info.rows = out->n_rows;
    for (size_t i = 0; i < n; i++) {
        const int64_t begin = data_corpus_start(corpus, documents[i]);
        const int64_t ids = data_corpus_start(corpus, documents[i] + 1) - begin;
        out->info.tokens += (uint64_t)ids;
        if (corpus->weights.data == NULL) out->info.targets += ids > 0 ? (uint64_t)(ids - 1) : 0;
        else
            for (int64_t k = 1; k < ids; k++) out->info.targets += (uint64_t)data_corpus_is_target(corpus, begin + k);
    }
}

/* Scratch memory of one packing, in one allocation. */
typedef struct scratch {
    void *memory;
    size_t bytes;
    data_piece *pieces;
    int64_t *order, *counts;
    rooms rooms;
} scratch;

static weft_status scratch_take(scratch *out, const weft_host *host, size_t n, int64_t context) {
    const size_t places = (size_t)context + 2, words = places / 64 + 2;
    const size_t bytes = n * (sizeof *out->pieces + 16) + (2 * places + words) * 8 + 64;
    char *at = host->alloc(host, bytes, 64);
    if (at == NULL) return WEFT_E_MEMORY;
    memset(at, 0, bytes);
    out->memory = at;
    out->bytes = bytes;
    out->pieces = (data_piece *)(void *)at;
    out->order = (int64_t *)(void *)(at + n * sizeof *out->pieces);
    out->rooms.below = out->order + n;
    out->counts = out->rooms.below + n;
    out->rooms.top = out->counts + places;
    out->rooms.words = (uint64_t *)(void *)(out->rooms.top + places);
    out->rooms.context = context;
    memset(out->rooms.top, 0xFF, places * sizeof *out->rooms.top);
    return WEFT_OK;
}

static weft_status rows_take(data_rows *out, const weft_host *host) {
    out->pieces = host->alloc(host, (out->n_pieces + 1) * sizeof *out->pieces, 64);
    out->first = host->alloc(host, (out->n_rows + 2) * sizeof *out->first, 64);
    return out->pieces != NULL && out->first != NULL ? WEFT_OK : WEFT_E_MEMORY;
}

/* Assigns one sequence per chunk; `sorted`: shortest first, for grouping by length. */
static size_t assign_alone(data_piece *pieces, const int64_t *order, size_t n, int sorted) {
    for (size_t i = 0; i < n; i++) pieces[sorted ? order[n - 1 - i] : (int64_t)i].row = (int32_t)i;
    return n;
}

weft_status data_rows_pack(data_rows *out, const weft_host *host, const data_corpus *corpus, const size_t *documents,
                           size_t n, int64_t context, data_packing packing, weft_error *err) {
    data_rows rows = {.corpus = corpus, .n_pieces = cut(NULL, corpus, documents, n, context)};
    scratch s = {0};
    weft_status status = WEFT_OK;
    if (rows.n_pieces > INT32_MAX)
        return weft_error_set(err, WEFT_E_USER,
                              "[data] context = %lld splits the text into %zu chunks, more than %d. Fix: set "
                              "a longer context",
                              (long long)context, rows.n_pieces, INT32_MAX);
    status = scratch_take(&s, host, rows.n_pieces, context);
    if (status == WEFT_OK) {
        (void)cut(s.pieces, corpus, documents, n, context);
        sort_by_length(s.order, s.counts, s.pieces, rows.n_pieces, context);
        if (packing == DATA_BEST_FIT) rows.n_rows = assign_rows(s.pieces, s.order, rows.n_pieces, &s.rooms);
        else rows.n_rows = assign_alone(s.pieces, s.order, rows.n_pieces, packing == DATA_BY_LENGTH);
        status = rows_take(&rows, host);
    }
    if (status == WEFT_OK) {
        group_by_row(&rows, s.pieces, rows.n_pieces);
        count(&rows, corpus, documents, n);
        rows.temporary = s.bytes + n * sizeof *documents;
        *out = rows;
    } else {
        data_rows_free(&rows, host);
        (void)weft_error_set(err, status, "no memory to pack %zu chunks", rows.n_pieces);
    }
    host->release(host, s.memory);
    return status;
}

void data_rows_free(data_rows *rows, const weft_host *host) {
    host->release(host, rows->pieces);
    host->release(host, rows->first);
    memset(rows, 0, sizeof *rows);
}
