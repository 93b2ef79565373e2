/* host/program/exchange_matches.h: matches the exchanges of checked programs across ranks, for simulations by time.
 *
 * The checker (check_match.c) matches them too, but validates each match; the programs here are known to be correct. */
#ifndef WEFT_HOST_PROGRAM_EXCHANGE_MATCHES_H
#define WEFT_HOST_PROGRAM_EXCHANGE_MATCHES_H

#include "program/program.h"

typedef struct weft_exchange_matches {
    int32_t **of;  /* [world][n_instructions] the exchange of an instruction; -1: no other rank takes part */
    int32_t *size; /* [n] number of ranks in it */
    int32_t n, world;
} weft_exchange_matches;

/* programs: of all ranks of a placed job. The caller frees *out even after a failure. */
weft_status weft_exchange_matches_find(weft_exchange_matches *out, const weft_program *const *programs,
                                       const weft_job_spec *job, weft_error *err);
void weft_exchange_matches_free(weft_exchange_matches *self);

#endif
