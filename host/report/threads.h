/* host/report/threads.h: whether one thread would train faster than the several that the device uses: where kernels
 * are done sooner than a team has met (a small model), or members of it do not run when they are waited for (a busy
 * machine). */
#ifndef WEFT_HOST_REPORT_THREADS_H
#define WEFT_HOST_REPORT_THREADS_H

#include "run/state.h"

/* Seconds of FORWARD and BACKWARD of a leaf by as many threads as the device has, and by one. */
typedef struct weft_threads {
    int32_t n;
    double several, one; /* 0: not measured */
} weft_threads;

/* Takes a tenth of a second or so, and nothing where it need not be asked: the device has one thread, or cannot do with
 * fewer (weft/team.h), or the work is so much that any team is worth its meeting. The engine is prepared for training
 * and not allocated. */
weft_status weft_threads_compare(weft_threads *out, weft_engine *engine, weft_error *err);

/* By more than what such a measurement is off by. */
bool weft_threads_one_is_faster(const weft_threads *self);

#endif
