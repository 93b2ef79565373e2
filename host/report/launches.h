/* host/report/launches.h: how many kernels, products and copies a training step starts on a device that can say so
 * (weft/dry_run.h): counted by the step's own code on a device that does nothing of it, before any memory is taken. */
#ifndef WEFT_HOST_REPORT_LAUNCHES_H
#define WEFT_HOST_REPORT_LAUNCHES_H

#include "run/engine.h"

typedef struct weft_launches {
    bool known;                        /* false: the device cannot say, or starts nothing */
    int64_t kernels, products, copies; /* of this rank, with leaves of the largest length */
} weft_launches;

/* Of a plan for training that has been made; nothing of the engine changes. */
weft_status weft_launches_count(weft_launches *out, const weft_engine *engine, weft_error *err);

#endif
