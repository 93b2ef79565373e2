/* host/program/fold.h: the summation order of terms.
 *
 * A term is the sum of the micro-batches [lo, hi). Terms arrive one by one and enter a stack of partial sums. A term is
 * added to the top sum if the definition adds the two; otherwise it is pushed as a new sum.
 *
 *     ordered   ((g0 + g1) + g2) + ...                       one sum at any time
 *     tree      halve(first ceil(n/2)) + halve(the rest)     as many sums as the tree is deep
 *
 * Terms are added in arrival order if that differs from the definition, or if the definition leaves the order open
 * (fast). */
#ifndef WEFT_HOST_PROGRAM_FOLD_H
#define WEFT_HOST_PROGRAM_FOLD_H

#include <stdbool.h>
#include <weft/strategy.h>

#define WEFT_FOLD_DEPTH 34

typedef struct weft_fold {
    int32_t reduce; /* weft_reduce */
    int32_t n;      /* micro-batches of the whole sum */
    int32_t top;    /* sums on the stack */
    bool loose;     /* terms are added in arrival order */
    int32_t lo[WEFT_FOLD_DEPTH], hi[WEFT_FOLD_DEPTH];
} weft_fold;

/* The operations for one term. */
typedef struct weft_fold_step {
    int32_t slot;   /* the target sum of the term */
    bool add;       /* true: add to that sum; false: overwrite it */
    int32_t merges; /* number of subsequent merges of the top sum into the one below it */
} weft_fold_step;

weft_fold weft_fold_begin(int32_t reduce, int32_t n, bool loose);
weft_fold_step weft_fold_push(weft_fold *fold, int32_t lo, int32_t hi);

#endif
