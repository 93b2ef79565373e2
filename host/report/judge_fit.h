/* host/report/judge_fit.h: checks whether a session fits into the available memory, and otherwise finds changes that
 * would make it fit. */
#ifndef WEFT_HOST_REPORT_JUDGE_FIT_H
#define WEFT_HOST_REPORT_JUDGE_FIT_H

#include "report/changes.h"

typedef struct weft_fit {
    weft_room room;
    weft_need need;
    int32_t world; /* ranks; `need` is the requirement of the rank or machine with the least remaining memory */
    bool fits;
    weft_fit_changes changes; /* if it does not fit */
} weft_fit;

/* Checks a session in this process only, independent of other ranks. survey: of the session's ranks; NULL: one rank. */
weft_status weft_fit_judge(weft_fit *out, const weft_fit_question *question, const weft_survey *survey,
                           weft_error *err);

/* Checks a session of running ranks: each passes its own available memory in the question, and the fullest is checked.
 * Fills out on the first rank only. [collective] */
weft_status weft_fit_judge_ranks(weft_fit *out, const weft_fit_question *question, weft_error *err);

#endif
