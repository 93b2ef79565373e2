/* host/program/terms.h: what every REDUCE of a rank adds up.
 *
 * A REDUCE that travels brings a row from each rank of its group; which leaves a row stands for follows from the
 * programs of all of them. The groups that events speak of are defined here, for whoever needs their members. */
#ifndef WEFT_HOST_PROGRAM_TERMS_H
#define WEFT_HOST_PROGRAM_TERMS_H

#include "program/program.h"

/* A row of an exchange: the leaves [lo, hi). */
typedef struct weft_term {
    int32_t row; /* place of the rank that it comes from in the group */
    int32_t lo, hi;
} weft_term;

typedef struct weft_terms {
    weft_term *terms;   /* of all events, each event's in the order of their leaves */
    int32_t *first, *n; /* [n_events] of each REDUCE; n 0: another event */
    bool scattered;     /* some row stands for leaves that do not follow one another */
} weft_terms;

/* How a unit is cut: the world is R replicas, and shard groups of `group` ranks that follow one another. */
typedef struct weft_cut {
    int32_t replicas, group, groups; /* groups = replicas / group */
} weft_cut;

weft_cut weft_cut_of(const weft_job_spec *job, int32_t unit);
/* The pieces of a unit, R in all, lie in the order of the places of ALL: rank r has place (r % group) * groups +
 * r / group, so that the pieces of a shard follow one another. */
int32_t weft_cut_place(const weft_cut *cut, int32_t rank);
int32_t weft_cut_rank(const weft_cut *cut, int32_t place);

/* Ranks of a scope's group, and a rank's place in the one that it belongs to. */
int32_t weft_scope_size(const weft_cut *cut, int32_t scope);
int32_t weft_scope_place(const weft_cut *cut, int32_t scope, int32_t rank);
bool weft_scope_together(const weft_cut *cut, int32_t scope, int32_t a, int32_t b);

/* programs: of all ranks. */
weft_status weft_terms_create(weft_terms **out, const weft_program *const *programs, const weft_job_spec *job,
                              int32_t rank, weft_error *err);
void weft_terms_destroy(weft_terms *terms); /* NULL is fine */

#endif
