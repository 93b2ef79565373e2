/* host/tools/plan/forecast.h: predicts the time of a step for each rank from measured rates. */
#ifndef WEFT_HOST_TOOLS_PLAN_FORECAST_H
#define WEFT_HOST_TOOLS_PLAN_FORECAST_H

#include "tools/common/plan_costs.h"
#include "tools/plan/rates.h"

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
                               const weft_all_rank_plan *all_rank_plan, const weft_rank_costs *costs, weft_error *err);
void weft_forecast_free(weft_forecast *self);

void weft_forecast_print(const weft_forecast *self, FILE *to);
json_t *weft_forecast_object(const weft_forecast *self);

#endif
