/* host/program/fold.h: the order in which terms become one sum.
 *
 * A term stands for the leaves [lo, hi). Terms come one by one, and a stack of partial sums takes them in: a term joins
 * the sum on top where the definition says that the two are added, else it waits as a sum of its own.
 *
 *     ordered   ((g0 + g1) + g2) + ...                       one sum at any time
 *     tree      halve(first ceil(n/2)) + halve(the rest)     as many as the tree is deep
 *
 * Where terms do not come as the definition wants them, or the definition leaves it open (fast), they are added as they
 * come. */
#ifndef WEFT_HOST_PROGRAM_FOLD_H
#define WEFT_HOST_PROGRAM_FOLD_H

#include <stdbool.h>
#include <weft/strategy.h>

#define WEFT_FOLD_DEPTH 34

typedef struct weft_fold {
    int32_t reduce; /* weft_reduce */
    int32_t n;      /* leaves of the whole sum */
    int32_t top;    /* sums on the stack */
    bool loose;     /* terms are added as they come */
    int32_t lo[WEFT_FOLD_DEPTH], hi[WEFT_FOLD_DEPTH];
} weft_fold;

/* What to do with a term. */
typedef struct weft_fold_step {
    int32_t slot;   /* the sum that it joins, or becomes */
    bool add;       /* false: it becomes that sum */
    int32_t merges; /* then so many times the last sum but one takes in the last */
} weft_fold_step;

weft_fold weft_fold_begin(int32_t reduce, int32_t n, bool loose);
weft_fold_step weft_fold_push(weft_fold *fold, int32_t lo, int32_t hi);

#endif
