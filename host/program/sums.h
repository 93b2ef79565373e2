/* host/program/sums.h: byte sizes of a placement: the state of a rank, the exchange buffers of units, and pending
 * gradient sums. */
#ifndef WEFT_HOST_PROGRAM_SUMS_H
#define WEFT_HOST_PROGRAM_SUMS_H

#include "program/plan.h"

#include <stdbool.h>
#include <weft/strategy.h>

/* ---- the summation order of terms ----
 *
 * A term is the sum of the micro-batches [lo, hi). Terms arrive one by one and enter a stack of partial sums. A term is
 * added to the top sum if the definition adds the two; otherwise it is pushed as a new sum.
 *
 *     ordered   ((g0 + g1) + g2) + ...                       one sum at any time
 *     tree      halve(first ceil(n/2)) + halve(the rest)     as many sums as the tree is deep
 *
 * Terms are added in arrival order if that differs from the definition, or if the definition leaves the order open
 * (fast). */

#define WEFT_FOLD_DEPTH 34

typedef struct weft_fold {
    int32_t reduce; /* weft_reduce */
    int32_t n;      /* micro-batches of the complete sum */
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

/* Computes the bytes of a unit's slots and exchanges under the job's placement. */
void weft_sums_size_units(const weft_plan *plan, weft_job *job);

/* Computes the extents that this rank keeps under the placement of a job. */
void weft_sums_hold(weft_plan *plan, const weft_job_spec *job);

/* Plans the training program's gradient sums and the bytes of the pending ones. programs: of all ranks. */
void weft_sums_plan(const weft_plan *plan, weft_mode_plan *mode_plan, const weft_program *const *programs);

/* Finds the rank that computes each micro-batch's loss. */
void weft_sums_losses(weft_mode_plan *mode_plan, const weft_program *const *programs, int32_t world);

/* Returns the byte offset in the gradients' region at which the sums of an exchange of this scope arrive. */
int64_t weft_sums_target(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t scope);

#endif
