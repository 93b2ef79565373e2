/* host/report/forecast.h: predicts the time of a step for each rank from measured rates, and counts its kernels. */
#ifndef WEFT_HOST_REPORT_FORECAST_H
#define WEFT_HOST_REPORT_FORECAST_H

#include "report/all_rank_plan.h"
#include "report/rates.h"

#include <jansson.h>
#include <stdio.h>

typedef struct weft_forecast {
    weft_rank_time *ranks; /* [world] */
    int32_t world;
    double step_seconds;
    int64_t tokens;  /* positions of a step's micro-batches, including padding */
    json_t *assumed; /* an array of sentences */
} weft_forecast;

/* Makes a forecast. Free it also after a failure. */
weft_status weft_forecast_make(weft_forecast *out, const weft_rates *rates, const weft_engine *engine,
                               const weft_all_rank_plan *all_rank_plan, weft_error *err);
void weft_forecast_free(weft_forecast *self);

void weft_forecast_print(const weft_forecast *self, FILE *to);
json_t *weft_forecast_object(const weft_forecast *self);

/* Kernels, GEMMs and copies that a training step launches, on a device that supports dry runs (weft/dry_run.h). The
 * step's own code runs on a device that executes no work, before any memory is allocated. */
typedef struct weft_launches {
    bool known;                        /* false: the device cannot count, or launches no kernels */
    int64_t kernels, products, copies; /* of this rank, with micro-batches of the largest length */
} weft_launches;

/* Counts the launches of a finished training plan; the engine is unchanged. */
weft_status weft_launches_count(weft_launches *out, const weft_engine *engine, weft_error *err);

#endif
