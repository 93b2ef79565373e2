/* host/report/trial.h: a run that is open, planned once more with some settings changed.
 *
 * The configuration is read again with further overrides and judged as ever; text, data, device and optimizer are those
 * of the session. What comes out is what a run with these settings would plan. Nothing is started, nothing is told, and
 * no memory of the device is taken. */
#ifndef WEFT_HOST_REPORT_TRIAL_H
#define WEFT_HOST_REPORT_TRIAL_H

#include "report/need.h"
#include "run/session.h"

/* A session, what it was opened with, and the room that there is. */
typedef struct weft_fit_question {
    const weft_session *session;
    const char *path;
    const char *const *overrides;
    size_t n_overrides;
    weft_room room;
    uint32_t stays; /* what is not to be changed: 1u << of each weft_fit_axis (axes.h) */
} weft_fit_question;

enum { WEFT_TRIAL_KEYS = 7, WEFT_TRIAL_KEY_SIZE = 64 };

typedef struct weft_trial {
    const char *keys[WEFT_TRIAL_KEYS]; /* overrides behind those of the session */
    int32_t n_keys;
    int32_t ranks, nodes; /* of the world */
} weft_trial;

/* What the plan wants. An error: this cannot be run, or not be planned. */
weft_status weft_trial_plan(weft_need *out, const weft_fit_question *question, const weft_trial *trial,
                            weft_error *err);

#endif
