/* host/program/plugin_answers.h: records hashes of plugin results in a plan (plan.h), and compares them with those of
 * another process. */
#ifndef WEFT_HOST_PROGRAM_PLUGIN_ANSWERS_H
#define WEFT_HOST_PROGRAM_PLUGIN_ANSWERS_H

#include "program/plan.h"

/* Record the results so far. Each is called immediately after its result, because later ones modify the plan. */
void weft_answers_note_model(weft_plan *plan);
void weft_answers_note_adapters(weft_plan *plan);
void weft_answers_note_units(weft_plan *plan);
void weft_answers_note_programs(weft_plan *plan); /* also segments and placements */

/* Returns the first kind that differs; WEFT_N_ANSWERS: none. */
int32_t weft_answers_part(const weft_plan_answers *a, const weft_plan_answers *b);

/* Returns WEFT_E_PLUGIN: "policy:mine (/home/you/weft-policy-mine.so) makes other units on rank 1 than on rank 0: ...".
 * here, there: "on rank 1", "on rank 0". */
weft_status weft_answers_report_difference(const weft_plan *plan, int32_t kind, const char *here,
                                           const weft_plan_answers *mine, const char *there,
                                           const weft_plan_answers *theirs, weft_error *err);

#endif
