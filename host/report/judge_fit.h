/* host/report/judge_fit.h: whether a session has the room that it wants, and where not what would change that. */
#ifndef WEFT_HOST_REPORT_JUDGE_FIT_H
#define WEFT_HOST_REPORT_JUDGE_FIT_H

#include "report/changes.h"

typedef struct weft_fit {
    weft_room room;
    weft_need need;
    int32_t world; /* ranks, of which `need` is what the fullest room is for */
    bool fits;
    weft_fit_changes changes; /* where it does not fit */
} weft_fit;

/* survey: of the session's ranks; NULL: it is of one rank. By one process alone, whoever the others are. */
weft_status weft_fit_judge(weft_fit *out, const weft_fit_question *question, const weft_survey *survey,
                           weft_error *err);

/* The same of ranks that are there: each gives its own room with the question, and the fullest is judged. out is filled
 * on the first rank alone. [collective] */
weft_status weft_fit_judge_ranks(weft_fit *out, const weft_fit_question *question, weft_error *err);

#endif
