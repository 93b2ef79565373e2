/* host/report/cost.h: how long a step of all ranks takes, from their programs and the rates of a machine. */
#ifndef WEFT_HOST_REPORT_COST_H
#define WEFT_HOST_REPORT_COST_H

#include "report/rates.h"
#include "report/survey.h"

/* The training programs of all ranks, whose plans are in the survey, played by these rates, which are this model's.
 * out: [world]. */
weft_status weft_costs_play(weft_rank_time *out, double *step_seconds, const weft_rates *rates,
                            const weft_engine *engine, const weft_survey *survey, weft_error *err);

#endif
