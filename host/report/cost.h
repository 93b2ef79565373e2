/* host/report/cost.h: predicts the step time of all ranks from their programs and a machine's measured rates. */
#ifndef WEFT_HOST_REPORT_COST_H
#define WEFT_HOST_REPORT_COST_H

#include "report/rates.h"
#include "report/all_rank_plan.h"

/* Simulates the training programs of all ranks, planned by the all-rank plan, with rates measured for this model. out:
 * [world]. */
weft_status weft_costs_play(weft_rank_time *out, double *step_seconds, const weft_rates *rates,
                            const weft_engine *engine, const weft_all_rank_plan *all_rank_plan, weft_error *err);

#endif
