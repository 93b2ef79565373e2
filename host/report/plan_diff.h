/* host/report/plan_diff.h: key facts of a configuration as names and values, and the differences between two
 * configurations.
 *
 *     {"keys": {"strategy.plugin": "ddp"}, "numbers": {"memory total": 14356896}}
 *
 * Bytes of memory are those of the largest rank; instructions and bytes sent are totals of all ranks. */
#ifndef WEFT_HOST_REPORT_PLAN_DIFF_H
#define WEFT_HOST_REPORT_PLAN_DIFF_H

#include "report/all_rank_plan.h"
#include "run/session.h"

#include <jansson.h>

weft_status weft_plan_diff_facts(json_t **out, const weft_session *session, const weft_all_rank_plan *all_rank_plan,
                                 weft_error *err);

/* Returns {"keys": [{"name": ..., "a": ..., "b": ...}], "numbers": [...]}: the differences; null for a missing value.
 */
json_t *weft_plan_diff_make(const json_t *a, const json_t *b);
/* Prints the differences as a table; the names are the titles of the two columns. */
void weft_plan_diff_print(const json_t *difference, const char *name_a, const char *name_b, FILE *to);

#endif
