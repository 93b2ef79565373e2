/* host/base/place.c: see place.h.
 *
 * Greedy packing: each interval in turn is put into a gap between the placed intervals that overlap with it in time.
 * Orders: largest first, largest area (bytes x life) first, longest life first, earliest first. Gaps: the lowest, or
 * the tightest. If no combination reaches the peak, a bounded number of orders near the best one is tried. */
#include "base/place.h"

#include "base/alloc.h"
#include "base/units.h"

#include <stdbool.h>
#include <stdlib.h>

enum {
    TIMES_PER_BIN = 32, /* a bin of the first level lists the intervals of this many consecutive times */
    BINS_EACH = 4,      /* bins of a level per bin of the next; maximum per interval, except on the last level */
    LEVELS_MOST = 16,
    ROUNDS_WORK = 400000, /* limit on intervals placed by the rounds after the plain orders */
    ROUNDS_MOST = 200,
    N_RULES = 4
};

/* A placed interval that overlaps in time with the current one. */
typedef struct span {
    int64_t begin, end;
} span;

typedef struct packer {
    const weft_live_interval *items;
    int32_t n, n_bins, n_levels;
    int32_t level_start[LEVELS_MOST]; /* first bin of each level */
    int64_t *bytes;                   /* [n] rounded up */
    int64_t *offset;                  /* [n] of the current packing */
    int64_t *best;                    /* [n] of the smallest packing so far */
    int32_t *order;                   /* [n] */
    int32_t *best_order;              /* [n] */
    int32_t *bin_start;               /* [n_bins + 1] into bin_items */
    int32_t *bin_fill;                /* [n_bins] */
    int32_t *bin_items;
    span *spans;   /* [n] scratch */
    span *merged;  /* [n] scratch of alternate rounds */
    int32_t *runs; /* [n_bins + 1] at most: start of each bin's spans, and the end of all */
    int64_t best_arena;
} packer;

typedef struct keyed {
    double key; /* larger keys are placed first */
    int64_t bytes;
    int32_t item, reserved;
} keyed;

/* Orders ties by size, then by index, so that the order is total. */
static int keyed_compare(const void *left, const void *right) {
    const keyed *a = left, *b = right;
    if (a->key != b->key) return a->key > b->key ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return (a->item > b->item) - (a->item < b->item);
}

/* Merges two adjacent runs into one. */
static void merge_two(span *to, const span *from, int32_t begin, int32_t middle, int32_t end) {
    int32_t a = begin, b = middle;
    for (int32_t k = begin; k < end; k++)
        to[k] = b == end || (a < middle && from[a].begin <= from[b].begin) ? from[a++] : from[b++];
}

/* Merges the sorted runs of the bins pairwise until one is left. */
static void merge_runs(packer *p, int32_t n_runs) {
    while (n_runs > 1) {
        span *const from = p->spans;
        int32_t n = 0;
        for (int32_t r = 0; r < n_runs; r += 2) {
            const int32_t begin = p->runs[r], end = p->runs[r + 2 < n_runs ? r + 2 : n_runs];
            merge_two(p->merged, from, begin, r + 1 < n_runs ? p->runs[r + 1] : end, end);
            p->runs[n++] = begin;
        }
        p->runs[n] = p->runs[n_runs];
        n_runs = n;
        p->spans = p->merged;
        p->merged = from;
    }
}

/* Returns the bin of a level that contains a time. */
static int32_t bin_at(const packer *p, int32_t level, int32_t time) {
    int32_t bin = time / TIMES_PER_BIN;
    for (int32_t l = 0; l < level; l++) bin /= BINS_EACH;
    return p->level_start[level] + bin;
}

/* Returns the lowest level on which the interval is in few bins, so that a long one is not in all bins of its life. */
static int32_t level_of(const packer *p, const weft_live_interval *item) {
    int32_t level = 0;
    while (level + 1 < p->n_levels && bin_at(p, level, item->last) - bin_at(p, level, item->first) >= BINS_EACH)
        level++;
    return level;
}

/* Collects the placed intervals that overlap in time with item i, by offset. An interval is in every bin of its level
 * that it lives in; it is taken from the first common bin only. */
static int32_t collect_spans(packer *p, int32_t i) {
    const weft_live_interval *item = &p->items[i];
    int32_t n = 0, n_runs = 0;
    for (int32_t level = 0; level < p->n_levels; level++) {
        const int32_t from = bin_at(p, level, item->first), to = bin_at(p, level, item->last);
        for (int32_t bin = from; bin <= to; bin++) {
            const int32_t *list = p->bin_items + p->bin_start[bin], before = n;
            for (int32_t k = 0; k < p->bin_fill[bin]; k++) {
                const weft_live_interval *other = &p->items[list[k]];
                if (item->first > other->last || other->first > item->last) continue;
                if (bin != from && bin != bin_at(p, level, other->first)) continue;
                p->spans[n].begin = p->offset[list[k]];
                p->spans[n++].end = p->offset[list[k]] + p->bytes[list[k]];
            }
            if (n > before) p->runs[n_runs++] = before;
        }
    }
    p->runs[n_runs] = n;
    merge_runs(p, n_runs);
    return n;
}

/* Returns the lowest or the tightest gap of at least `bytes` between sorted spans, or the end of all spans. */
static int64_t find_gap(const span *spans, int32_t n, int64_t bytes, bool tightest) {
    int64_t end = 0, found = -1, room = INT64_MAX;
    for (int32_t k = 0; k < n; k++) {
        const int64_t gap = spans[k].begin - end;
        if (gap >= bytes && gap < room) {
            found = end;
            room = gap;
            if (!tightest) return found;
        }
        if (spans[k].end > end) end = spans[k].end;
    }
    return found >= 0 ? found : end;
}

/* Inserts by offset, so that spans of one bin need no sorting. */
static void enter_bins(packer *p, int32_t i) {
    const weft_live_interval *item = &p->items[i];
    const int32_t level = level_of(p, item), to = bin_at(p, level, item->last);
    for (int32_t bin = bin_at(p, level, item->first); bin <= to; bin++) {
        int32_t *list = p->bin_items + p->bin_start[bin];
        int32_t at = p->bin_fill[bin]++;
        for (; at > 0 && p->offset[list[at - 1]] > p->offset[i]; at--) list[at] = list[at - 1];
        list[at] = i;
    }
}

/* Packs in p->order; keeps the result if it is the smallest so far. Returns the interval that ends highest. */
static int32_t pack_in_order(packer *p, bool tightest) {
    int64_t arena = 0;
    int32_t highest = 0;
    memset(p->bin_fill, 0, (size_t)p->n_bins * sizeof *p->bin_fill);
    for (int32_t k = 0; k < p->n; k++) {
        const int32_t i = p->order[k];
        const int32_t n = collect_spans(p, i);
        p->offset[i] = find_gap(p->spans, n, p->bytes[i], tightest);
        enter_bins(p, i);
        if (p->offset[i] + p->bytes[i] > arena) {
            arena = p->offset[i] + p->bytes[i];
            highest = i;
        }
    }
    if (arena <= p->best_arena) {
        p->best_arena = arena;
        memcpy(p->best, p->offset, (size_t)p->n * sizeof *p->best);
        memcpy(p->best_order, p->order, (size_t)p->n * sizeof *p->order);
    }
    return highest;
}

static void sort_order(packer *p, int rule) {
    keyed *keys = weft_alloc(p->n, sizeof *keys);
    for (int32_t i = 0; i < p->n; i++) {
        const double bytes = (double)p->bytes[i], first = p->items[i].first, life = p->items[i].last - first + 1.0;
        const double by_rule[N_RULES] = {bytes, bytes * life, life, -first};
        keys[i] = (keyed){by_rule[rule], p->bytes[i], i, 0};
    }
    qsort(keys, (size_t)p->n, sizeof *keys, keyed_compare);
    for (int32_t i = 0; i < p->n; i++) p->order[i] = keys[i].item;
    free(keys);
}

/* Alternates two moves: placing the interval that ended highest first, and swapping two items of the best order, chosen
 * by a fixed sequence: the result depends only on the intervals. */
static void improve_packing(packer *p, int64_t peak) {
    const size_t bytes = (size_t)p->n * sizeof *p->order;
    const int32_t rounds = (int32_t)weft_smaller(ROUNDS_WORK / p->n, ROUNDS_MOST);
    uint64_t sequence = 1;
    int32_t highest = 0, at[2] = {0};
    memcpy(p->order, p->best_order, bytes);
    highest = pack_in_order(p, false);
    for (int32_t round = 0; round < rounds && p->best_arena > peak; round++) {
        if (round % 4 == 0) {
            for (at[0] = 0; p->order[at[0]] != highest;) at[0]++;
            memmove(p->order + 1, p->order, (size_t)at[0] * sizeof *p->order);
            p->order[0] = highest;
        } else {
            memcpy(p->order, p->best_order, bytes);
            for (int i = 0; i < 2; i++) {
                sequence = sequence * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
                at[i] = (int32_t)((sequence >> 33) % (uint64_t)p->n);
            }
            p->order[at[0]] = p->best_order[at[1]];
            p->order[at[1]] = p->best_order[at[0]];
        }
        highest = pack_in_order(p, false);
    }
}

static void pack_all(packer *p, int64_t peak) {
    p->best_arena = INT64_MAX;
    for (int rule = 0; rule < N_RULES && p->best_arena > peak; rule++) {
        sort_order(p, rule);
        (void)pack_in_order(p, false);
        if (p->best_arena > peak) (void)pack_in_order(p, true);
    }
    if (p->best_arena > peak) improve_packing(p, peak);
}

static weft_status check_items(const weft_live_interval *items, int32_t n, int32_t *end, weft_error *err) {
    int64_t sum = 0;
    *end = 0;
    for (int32_t i = 0; i < n; i++) {
        if (items[i].bytes <= 0 || items[i].first < 0 || items[i].last < items[i].first || items[i].last == INT32_MAX)
            return weft_error_set(err, WEFT_E_HOST,
                                  "buffer %d of %lld bytes lives from %d to %d: bytes must be positive and the end not "
                                  "before the start",
                                  (int)i, (long long)items[i].bytes, (int)items[i].first, (int)items[i].last);
        if (items[i].bytes > (INT64_MAX >> 1) - 64 - sum)
            return weft_error_set(
                err, WEFT_E_USER,
                "the buffers together are larger than any memory. Fix: use a smaller micro_batch, context or "
                "model");
        sum += weft_cache_lines(items[i].bytes);
        if (items[i].last >= *end) *end = items[i].last + 1;
    }
    return WEFT_OK;
}

/* Finds the peak by summing the intervals that begin and end at each time. */
static void find_peak(weft_packing *out, const weft_live_interval *items, int32_t n, int32_t end) {
    int64_t live = 0, *change = weft_alloc((int64_t)end + 1, sizeof *change);
    for (int32_t i = 0; i < n; i++) {
        change[items[i].first] += weft_cache_lines(items[i].bytes);
        change[items[i].last + 1] -= weft_cache_lines(items[i].bytes);
    }
    for (int32_t time = 0; time < end; time++) {
        live += change[time];
        if (live <= out->peak) continue;
        out->peak = live;
        out->peak_time = time;
    }
    free(change);
}

static void packer_free(packer *p) {
    free(p->bytes);
    free(p->offset);
    free(p->best);
    free(p->order);
    free(p->best_order);
    free(p->bin_start);
    free(p->bin_fill);
    free(p->bin_items);
    free(p->spans);
    free(p->merged);
    free(p->runs);
}

/* Allocates bins with a fixed capacity: one slot for each interval that lives in them. */
static weft_status packer_init(packer *p, const weft_live_interval *items, int32_t n, int32_t end, weft_error *err) {
    size_t total = 0;
    p->items = items;
    p->n = n;
    for (int32_t bins = (end - 1) / TIMES_PER_BIN + 1, last = 0; last == 0; bins = (bins - 1) / BINS_EACH + 1) {
        last = bins <= BINS_EACH || p->n_levels + 1 == LEVELS_MOST;
        p->level_start[p->n_levels++] = p->n_bins;
        p->n_bins += bins;
    }
    p->bytes = weft_alloc(n, sizeof *p->bytes);
    p->offset = weft_alloc(n, sizeof *p->offset);
    p->best = weft_alloc(n, sizeof *p->best);
    p->order = weft_alloc(n, sizeof *p->order);
    p->best_order = weft_alloc(n, sizeof *p->best_order);
    p->spans = weft_alloc(n, sizeof *p->spans);
    p->merged = weft_alloc(n, sizeof *p->merged);
    p->runs = weft_alloc(p->n_bins + 1, sizeof *p->runs);
    p->bin_start = weft_alloc(p->n_bins + 1, sizeof *p->bin_start);
    p->bin_fill = weft_alloc(p->n_bins, sizeof *p->bin_fill);
    for (int32_t i = 0; i < n; i++) p->bytes[i] = weft_cache_lines(items[i].bytes);
    for (int32_t i = 0; i < n; i++) {
        const int32_t level = level_of(p, &p->items[i]), to = bin_at(p, level, p->items[i].last);
        for (int32_t bin = bin_at(p, level, p->items[i].first); bin <= to; bin++, total++) p->bin_start[bin + 1]++;
    }
    if (total > INT32_MAX)
        return weft_error_set(err, WEFT_E_MEMORY, "%d buffers live too long to be placed. Fix: use fewer micro-batches",
                              (int)p->n);
    for (int32_t bin = 0; bin < p->n_bins; bin++) p->bin_start[bin + 1] += p->bin_start[bin];
    p->bin_items = weft_alloc(total, sizeof *p->bin_items);
    return WEFT_OK;
}

weft_status weft_intervals_place(weft_live_interval *items, weft_packing *out, int32_t n, weft_error *err) {
    weft_packing packing = {0, 0, -1, 0};
    packer p = {0};
    int32_t end = 0;
    weft_status status = check_items(items, n, &end, err);
    if (status == WEFT_OK && n > 0) status = packer_init(&p, items, n, end, err);
    if (status == WEFT_OK && n > 0) {
        find_peak(&packing, items, n, end);
        pack_all(&p, packing.peak);
        packing.arena = p.best_arena;
        for (int32_t i = 0; i < n; i++) items[i].offset = p.best[i];
    }
    packer_free(&p);
    if (status == WEFT_OK) *out = packing;
    return status;
}
