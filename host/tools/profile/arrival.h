/* host/tools/profile/arrival.h: how a run comes to its weights: how long that takes, and whether they are there then.
 *
 * "There" is every page of the memory that the first step reads weights from. One that is absent costs that step a page
 * fault, which is time that a measurement of the load alone would hide. */
#ifndef WEFT_HOST_TOOLS_PROFILE_ARRIVAL_H
#define WEFT_HOST_TOOLS_PROFILE_ARRIVAL_H

#include "run/session.h"

typedef struct weft_arrival {
    double seconds;      /* from `begin` until the weights are in place */
    double load_seconds; /* of them, weft_engine_load: weights, compute copy, cleared states */
    int64_t pages;       /* of masters and compute copy; 0: memory that the host does not see */
    int64_t absent;      /* of them, those that are not there after loading */
} weft_arrival;

/* Pages of masters and compute copy, and those of them that are absent now; both 0 where the host does not see them. */
weft_status weft_weight_pages(int64_t *pages, int64_t *absent, const weft_engine *engine, weft_error *err);

/* weft_session_start and weft_engine_load, measured. begin: weft_clock_seconds where the start began. */
weft_status weft_arrival_measure(weft_arrival *out, weft_session *session, double begin, weft_error *err);

#endif
