/* host/program/plugin_answers.h: the answers of plugins (answers.h) noted in a plan, and held against those of another
 * process. */
#ifndef WEFT_HOST_PROGRAM_PLUGIN_ANSWERS_H
#define WEFT_HOST_PROGRAM_PLUGIN_ANSWERS_H

#include "program/plan.h"

/* Notes what is known of a plan by now; each as soon as it is, for later answers change what those before have left. */
void weft_answers_note_model(weft_plan *plan);
void weft_answers_note_adapters(weft_plan *plan);
void weft_answers_note_units(weft_plan *plan);
void weft_answers_note_programs(weft_plan *plan); /* segments and places, too */

/* The first that differs; WEFT_N_ANSWERS: none does. */
int32_t weft_answers_part(const weft_plan_answers *a, const weft_plan_answers *b);

/* "policy:mine (/home/you/weft-policy-mine.so) makes other units on rank 1 than on rank 0: ...", of what one of them
 * is known to differ in. here, there: "on rank 1", "on rank 0". Gives WEFT_E_PLUGIN. */
weft_status weft_answers_report_difference(const weft_plan *plan, int32_t kind, const char *here,
                                           const weft_plan_answers *mine, const char *there,
                                           const weft_plan_answers *theirs, weft_error *err);

#endif
