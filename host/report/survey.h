/* host/report/survey.h: what every rank of a world will take and send, asked of one process.
 *
 * A rank's figures are made by the very functions that make a run's: its program is compiled, what it keeps is laid out
 * and its program placed. Of ranks whose programs are alike but for the leaves' numbers one is placed for all. */
#ifndef WEFT_HOST_REPORT_SURVEY_H
#define WEFT_HOST_REPORT_SURVEY_H

#include "report/rank_plan.h"

/* Of a plan for training. */
weft_status weft_survey_create(weft_survey **out, const weft_plan *plan, weft_error *err);
void weft_survey_destroy(weft_survey *survey); /* NULL is fine */

/* Bytes that a rank gives to each of the world in a step: to [world]. */
void weft_survey_links(const weft_survey *survey, int64_t *to, int32_t rank);

/* What another rank keeps of parameters: to be destroyed. */
weft_status weft_survey_hold(weft_hold **out, const weft_plan *plan, int32_t rank, weft_error *err);

#endif
