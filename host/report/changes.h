/* host/report/changes.h: the smallest changes of a run's settings that would make it fit.
 *
 * They are looked for along axes, each a setting with values that take less and less, the mildest first. Where no
 * single change is enough, those that leave the result as it is are joined with one of the others, and then what is not
 * needed of them is taken back. Each one that is told was planned with just these settings (trial.h). */
#ifndef WEFT_HOST_REPORT_CHANGES_H
#define WEFT_HOST_REPORT_CHANGES_H

#include "report/trial.h"

enum { WEFT_FIT_CHANGES = 8 };

/* Settings that are changed together, and what is planned with them. */
typedef struct weft_fit_change {
    char keys[WEFT_TRIAL_KEYS][WEFT_TRIAL_KEY_SIZE]; /* as overrides */
    int32_t n_keys;
    int32_t ranks, nodes; /* of the world then ... */
    bool moves, grows;    /* ... which is not as it was; and it wants more devices, or machines */
    weft_need need;
} weft_fit_change;

typedef struct weft_fit_changes {
    weft_fit_change fitting[WEFT_FIT_CHANGES]; /* each of them is enough */
    int32_t n;
    weft_fit_change
        least; /* where there is none: the one of all that were planned that takes the least; need.ranks 0: none
                          was planned */
} weft_fit_changes;

/* Of a question whose session does not fit. WEFT_E_MEMORY: as ever; what cannot be planned is passed over. */
weft_status weft_fit_changes_find(weft_fit_changes *out, const weft_fit_question *question, weft_error *err);

#endif
