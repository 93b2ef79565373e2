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
    LIVES_PER_BIN = 8,    /* so that most intervals are in one bin or two, and a bin has few that are far in time */
    ROUNDS_WORK = 400000, /* limit on intervals placed by the rounds after the plain orders */
    ROUNDS_MOST = 200
};

typedef enum rule { LARGEST, LARGEST_AREA, LONGEST, EARLIEST, N_RULES } rule;

/* The placed intervals that live during one of the equal ranges of time. */
typedef struct bin {
    int32_t *items; /* by offset */
    int32_t n, at;  /* at: the next one that find_gap visits */
} bin;

typedef struct packer {
    const weft_live_interval *items;
    int32_t n, n_bins;
    int64_t times_per_bin;
    bin *bins;
    int64_t *offset;     /* [n] of the current packing */
    int64_t *best;       /* [n] of the smallest packing so far */
    int32_t *order;      /* [n] */
    int32_t *best_order; /* [n] */
    int64_t best_arena;
    rule rule; /* of sort_order */
} packer;

static int64_t bytes_of(const packer *p, int32_t i) {
    return weft_cache_lines(p->items[i].bytes);
}

/* Returns the bin whose next interval has the lowest offset, of those that item i lives in; NULL: all are visited. */
static bin *next_bin(const packer *p, int32_t i) {
    bin *next = NULL, *last = &p->bins[p->items[i].last / p->times_per_bin];
    for (bin *one = &p->bins[p->items[i].first / p->times_per_bin]; one <= last; one++)
        if (one->at < one->n && (next == NULL || p->offset[one->items[one->at]] < p->offset[next->items[next->at]]))
            next = one;
    return next;
}

/* Returns the lowest or the tightest gap for item i between the placed intervals that overlap with it in time, or the
 * end of all of them. Visiting one of several bins again changes nothing. */
static int64_t find_gap(packer *p, int32_t i, bool tightest) {
    const weft_live_interval *item = &p->items[i];
    int64_t end = 0, found = -1, room = INT64_MAX;
    for (int64_t k = item->first / p->times_per_bin; k <= item->last / p->times_per_bin; k++) p->bins[k].at = 0;
    for (bin *one = NULL; (one = next_bin(p, i)) != NULL;) {
        const int32_t k = one->items[one->at++];
        const int64_t gap = p->offset[k] - end;
        if (p->items[k].first > item->last || item->first > p->items[k].last) continue;
        if (gap >= bytes_of(p, i) && gap < room) {
            found = end;
            room = gap;
            if (!tightest) return found;
        }
        end = weft_larger(end, p->offset[k] + bytes_of(p, k));
    }
    return found >= 0 ? found : end;
}

static void enter_bins(packer *p, int32_t i) {
    for (int64_t k = p->items[i].first / p->times_per_bin; k <= p->items[i].last / p->times_per_bin; k++) {
        bin *one = &p->bins[k];
        int32_t at = one->n++;
        for (; at > 0 && p->offset[one->items[at - 1]] > p->offset[i]; at--) one->items[at] = one->items[at - 1];
        one->items[at] = i;
    }
}

/* Packs in p->order; keeps the result if it is the smallest so far. Returns the interval that ends highest. */
static int32_t pack_in_order(packer *p, bool tightest) {
    int64_t arena = 0;
    int32_t highest = 0;
    for (int32_t k = 0; k < p->n_bins; k++) p->bins[k].n = 0;
    for (int32_t k = 0; k < p->n; k++) {
        const int32_t i = p->order[k];
        p->offset[i] = find_gap(p, i, tightest);
        enter_bins(p, i);
        if (p->offset[i] + bytes_of(p, i) > arena) {
            arena = p->offset[i] + bytes_of(p, i);
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

/* Returns the key of the rule; larger ones are placed first. */
static double key_of(const packer *p, int32_t i) {
    const double bytes = (double)bytes_of(p, i), first = p->items[i].first, life = p->items[i].last - first + 1.0;
    return p->rule == LARGEST ? bytes : p->rule == LARGEST_AREA ? bytes * life : p->rule == LONGEST ? life : -first;
}

/* Orders ties by size, then by index, so that the order is total. */
static int compare_by_rule(const void *left, const void *right, void *context) {
    const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    const double key_a = key_of(context, a), key_b = key_of(context, b);
    const int64_t bytes_a = bytes_of(context, a), bytes_b = bytes_of(context, b);
    if (key_a != key_b) return key_a > key_b ? -1 : 1;
    if (bytes_a != bytes_b) return bytes_a > bytes_b ? -1 : 1;
    return (a > b) - (a < b);
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
    for (int32_t i = 0; i < p->n; i++) p->order[i] = i;
    for (p->rule = LARGEST; p->rule < N_RULES && p->best_arena > peak; p->rule++) {
        qsort_r(p->order, (size_t)p->n, sizeof *p->order, compare_by_rule, p);
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

/* Divides the time until `end` into bins with room for each interval that lives in them; returns this room. */
static int32_t *make_bins(packer *p, int32_t end) {
    int64_t lives = 0, total = 0;
    int32_t *room = NULL, *next = NULL;
    for (int32_t i = 0; i < p->n; i++) lives += p->items[i].last - p->items[i].first + 1;
    p->times_per_bin = LIVES_PER_BIN * (lives / p->n + 1);
    p->n_bins = (int32_t)((end - 1) / p->times_per_bin + 1);
    p->bins = weft_alloc(p->n_bins, sizeof *p->bins);
    for (int32_t i = 0; i < p->n; i++)
        for (int64_t k = p->items[i].first / p->times_per_bin; k <= p->items[i].last / p->times_per_bin; k++, total++)
            p->bins[k].n++;
    next = room = weft_alloc(total, sizeof *room);
    for (int32_t k = 0; k < p->n_bins; next += p->bins[k++].n) p->bins[k].items = next;
    return room;
}

weft_status weft_intervals_place(weft_live_interval *items, weft_packing *out, int32_t n, weft_error *err) {
    packer p = {.items = items, .n = n, .best_arena = INT64_MAX};
    int32_t end = 0, *room = NULL;
    const weft_status status = check_items(items, n, &end, err);
    if (status != WEFT_OK) return status;
    *out = (weft_packing){.peak_time = -1};
    if (n == 0) return WEFT_OK;
    find_peak(out, items, n, end);
    p.offset = weft_alloc(n, sizeof *p.offset);
    p.best = weft_alloc(n, sizeof *p.best);
    p.order = weft_alloc(n, sizeof *p.order);
    p.best_order = weft_alloc(n, sizeof *p.best_order);
    room = make_bins(&p, end);
    pack_all(&p, out->peak);
    out->arena = p.best_arena;
    for (int32_t i = 0; i < n; i++) items[i].offset = p.best[i];
    free(room);
    free(p.bins);
    free(p.best_order);
    free(p.order);
    free(p.best);
    free(p.offset);
    return WEFT_OK;
}
