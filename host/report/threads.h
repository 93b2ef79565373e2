/* host/report/threads.h: measures whether one thread would train faster than the device's team of threads. This happens
 * if kernels are shorter than the team's synchronization (a small model), or if threads are not scheduled while others
 * wait for them (a busy machine). */
#ifndef WEFT_HOST_REPORT_THREADS_H
#define WEFT_HOST_REPORT_THREADS_H

#include "run/state.h"

/* Seconds of FORWARD and BACKWARD of a micro-batch with all threads of the device, and with one. */
typedef struct weft_threads {
    int32_t n;
    double several, one; /* 0: unmeasured */
} weft_threads;

/* Measures for about a tenth of a second. Skips the measurement if the device has one thread, cannot use fewer
 * (weft/team.h), or the work is so large that any team pays off. The engine is prepared for training and not allocated.
 */
weft_status weft_threads_compare(weft_threads *out, weft_engine *engine, weft_error *err);

/* Returns true if the difference exceeds the measurement error. */
bool weft_threads_one_is_faster(const weft_threads *self);

#endif
