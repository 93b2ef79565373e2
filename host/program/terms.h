/* host/program/terms.h: the terms that each REDUCE of a rank sums.
 *
 * A REDUCE across ranks receives one row from each rank of its group. The programs of all ranks determine the
 * micro-batches that a row sums. This file also defines the process groups of instructions and their members. */
#ifndef WEFT_HOST_PROGRAM_TERMS_H
#define WEFT_HOST_PROGRAM_TERMS_H

#include "program/program.h"

/* A row of an exchange: the sum of the micro-batches [lo, hi). */
typedef struct weft_term {
    int32_t row; /* index of the sending rank in the group */
    int32_t lo, hi;
} weft_term;

typedef struct weft_terms {
    weft_term *terms;   /* terms of all instructions, sorted by micro-batch within each instruction */
    int32_t *first, *n; /* [n_instructions] terms of each REDUCE; n 0: another instruction */
    bool scattered;     /* some row sums non-consecutive micro-batches */
} weft_terms;

/* Sharding of a unit: the world is R replicas, in shard groups of `group` consecutive ranks. */
typedef struct weft_cut {
    int32_t replicas, group, groups; /* groups = replicas / group */
} weft_cut;

weft_cut weft_cut_of(const weft_job_spec *job, int32_t unit);
/* Maps between ranks and the R chunks of a unit, which are stored in the order of scope ALL. Rank r has index (r %
 * group) * groups + r / group, so the chunks of a shard are contiguous. */
int32_t weft_cut_place(const weft_cut *cut, int32_t rank);
int32_t weft_cut_rank(const weft_cut *cut, int32_t place);

/* Return the size of a scope's group, a rank's index in its group, and whether two ranks share a group. */
int32_t weft_scope_size(const weft_cut *cut, int32_t scope);
int32_t weft_scope_place(const weft_cut *cut, int32_t scope, int32_t rank);
bool weft_scope_together(const weft_cut *cut, int32_t scope, int32_t a, int32_t b);

/* programs: of all ranks. */
weft_terms *weft_terms_create(const weft_program *const *programs, const weft_job_spec *job, int32_t rank);
void weft_terms_destroy(weft_terms *terms); /* NULL is fine */

#endif
