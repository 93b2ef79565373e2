/* host/report/trial.h: plans an open run again with some settings changed.
 *
 * The configuration is read again with additional overrides and validated as usual; text, data, device and optimizer
 * are those of the session. The result is the plan of a run with these settings. No process is started, no message is
 * printed, and no device memory is allocated. */
#ifndef WEFT_HOST_REPORT_TRIAL_H
#define WEFT_HOST_REPORT_TRIAL_H

#include "report/required_memory.h"
#include "run/session.h"

/* A session, its inputs, and the available memory. */
typedef struct weft_fit_question {
    const weft_session *session;
    const char *path;
    const char *const *overrides;
    size_t n_overrides;
    weft_available_memory room;
    uint32_t stays; /* settings that must not change: 1u << of each weft_fit_axis (axes.h) */
} weft_fit_question;

enum { WEFT_TRIAL_KEYS = 7, WEFT_TRIAL_KEY_SIZE = 64 };

typedef struct weft_trial {
    const char *keys[WEFT_TRIAL_KEYS]; /* overrides in addition to those of the session */
    int32_t n_keys;
    int32_t ranks, nodes; /* of the world */
} weft_trial;

/* Computes the plan's requirement. Fails if these settings cannot be run or planned. */
weft_status weft_trial_plan(weft_required_memory *out, const weft_fit_question *question, const weft_trial *trial,
                            weft_error *err);

#endif
