/* host/report/changes.h: finds the smallest changes of a run's settings that make it fit.
 *
 * The search follows axes, each a setting with values that need less and less memory. If no single change is enough,
 * the changes that keep the result are combined with one of the others, and then unnecessary ones are reverted. Each
 * reported change was planned with exactly these settings (trial.h). */
#ifndef WEFT_HOST_REPORT_CHANGES_H
#define WEFT_HOST_REPORT_CHANGES_H

#include "report/trial.h"

enum { WEFT_FIT_CHANGES = 8 };

/* Settings that are changed together, and the resulting plan. */
typedef struct weft_fit_change {
    char keys[WEFT_TRIAL_KEYS][WEFT_TRIAL_KEY_SIZE]; /* as overrides */
    int32_t n_keys;
    int32_t ranks, nodes; /* of the new world */
    bool moves, grows;    /* the world changes; it needs more devices, or machines */
    weft_required_memory need;
} weft_fit_change;

typedef struct weft_fit_changes {
    weft_fit_change fitting[WEFT_FIT_CHANGES]; /* each of them is sufficient */
    int32_t n;
    weft_fit_change
        least; /* if n is 0: the planned change with the smallest requirement; need.ranks 0: no change was planned */
} weft_fit_changes;

/* Finds changes for a question with a session that does not fit. Skips changes that cannot be planned. WEFT_E_MEMORY:
 * out of memory. */
weft_status weft_fit_changes_find(weft_fit_changes *out, const weft_fit_question *question, weft_error *err);

#endif
