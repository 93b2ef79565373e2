/* host/report/forecast.h: predicts the time of a step for each rank from measured rates. */
#ifndef WEFT_HOST_REPORT_FORECAST_H
#define WEFT_HOST_REPORT_FORECAST_H

#include "report/all_rank_plan.h"
#include "report/rates.h"

#include <jansson.h>
#include <stdio.h>

enum { WEFT_FORECAST_ASSUMED = 5 };

typedef struct weft_forecast {
    const weft_rates *rates;
    weft_rank_time *ranks; /* [world] */
    int32_t world;
    double step_seconds;
    int64_t tokens; /* positions of a step's micro-batches, including padding */
    char assumed[WEFT_FORECAST_ASSUMED][400];
    int32_t n_assumed;
} weft_forecast;

/* Makes a forecast. rates must outlive it. Free it also after a failure. */
weft_status weft_forecast_make(weft_forecast *out, const weft_rates *rates, const weft_engine *engine,
                               const weft_all_rank_plan *all_rank_plan, weft_error *err);
void weft_forecast_free(weft_forecast *self);

void weft_forecast_print(const weft_forecast *self, FILE *to);
json_t *weft_forecast_object(const weft_forecast *self);

#endif
