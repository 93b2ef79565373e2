/* host/program/placing.h: asking the strategy how many replicas there are and what lies where. */
#ifndef WEFT_HOST_PROGRAM_PLACING_H
#define WEFT_HOST_PROGRAM_PLACING_H

#include "program/plan.h"

/* Makes stage->job of its graphs and has it placed; units are cut where segments of several ranks read them. Also what
 * this rank keeps, the first time. micro-batches: of a step, all replicas together. step_work: scratch of NORM. */
weft_status weft_place_job(weft_plan *plan, weft_mode_plan *mode_plan, int32_t micro_batches, int64_t step_work,
                           weft_error *err);

#endif
