/* host/report/launches.h: counts the kernels, GEMMs and copies that a training step launches, on a device that supports
 * dry runs (weft/dry_run.h). The step's own code runs on a device that executes no work, before any memory is
 * allocated. */
#ifndef WEFT_HOST_REPORT_LAUNCHES_H
#define WEFT_HOST_REPORT_LAUNCHES_H

#include "run/engine.h"

typedef struct weft_launches {
    bool known;                        /* false: the device cannot count, or launches no kernels */
    int64_t kernels, products, copies; /* of this rank, with micro-batches of the largest length */
} weft_launches;

/* Counts the launches of a finished training plan; the engine is unchanged. */
weft_status weft_launches_count(weft_launches *out, const weft_engine *engine, weft_error *err);

#endif
