/* host/report/check_fit.h: checks whether a session fits into the available memory, and otherwise finds changes that
 * would make it fit. */
#ifndef WEFT_HOST_REPORT_CHECK_FIT_H
#define WEFT_HOST_REPORT_CHECK_FIT_H

#include "report/changes.h"

typedef struct weft_fit {
    weft_available_memory room;
    weft_required_memory need;
    int32_t world; /* ranks; `need` is the requirement of the rank or machine with the least remaining memory */
    bool fits;
    weft_fit_changes changes; /* if it does not fit */
} weft_fit;

/* Checks a session in this process only, independent of other ranks. all-rank plan: of the session's ranks; NULL:
 * one rank. */
weft_status weft_fit_check(weft_fit *out, const weft_fit_question *question, const weft_all_rank_plan *all_rank_plan,
                           weft_error *err);

/* Checks a session of running ranks: each passes its own available memory in the question, and the fullest is checked.
 * Fills out on the first rank only. [collective] */
weft_status weft_fit_check_ranks(weft_fit *out, const weft_fit_question *question, weft_error *err);

#endif
