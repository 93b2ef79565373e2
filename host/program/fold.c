/* host/program/fold.c: see fold.h. */
#include "program/fold.h"

weft_fold weft_fold_begin(int32_t reduce, int32_t n, bool loose) {
    weft_fold fold = {.reduce = reduce, .n = n, .loose = loose || reduce == WEFT_REDUCE_FAST};
    return fold;
}

/* True if [lo, mid) and [mid, hi) are the two halves of a node of the tree over [0, n). */
static bool are_halves(int32_t n, int32_t lo, int32_t mid, int32_t hi) {
    int32_t from = 0, to = n;
    while (to - from > hi - lo) {
        const int32_t split = from + (to - from + 1) / 2;
        if (hi <= split) to = split;
        else if (lo >= split) from = split;
        else return false;
    }
    return from == lo && to == hi && mid == from + (to - from + 1) / 2;
}

static bool term_joins(const weft_fold *fold, int32_t mid, int32_t hi) {
    const int32_t lo = fold->lo[fold->top - 1];
    if (fold->loose) return true;
    if (fold->hi[fold->top - 1] != mid) return false;
    if (fold->reduce == WEFT_REDUCE_ORDERED) return lo == 0;
    return are_halves(fold->n, lo, mid, hi);
}

/* A stack that is full, which no sum in order ever is, takes its terms as they come. */
weft_fold_step weft_fold_push(weft_fold *fold, int32_t lo, int32_t hi) {
    weft_fold_step step = {fold->top, false, 0};
    if (fold->top == WEFT_FOLD_DEPTH) fold->loose = true;
    if (fold->top > 0 && term_joins(fold, lo, hi)) {
        step.slot = fold->top - 1;
        step.add = true;
        fold->hi[step.slot] = hi;
    } else {
        fold->lo[fold->top] = lo;
        fold->hi[fold->top++] = hi;
        return step;
    }
    while (fold->top > 1) {
        const int32_t last_lo = fold->lo[fold->top - 1], last_hi = fold->hi[fold->top - 1];
        fold->top--;
        if (!term_joins(fold, last_lo, last_hi)) {
            fold->top++;
            break;
        }
        fold->hi[fold->top - 1] = last_hi;
        step.merges++;
    }
    return step;
}
