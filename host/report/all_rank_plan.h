/* host/report/all_rank_plan.h: all-rank plan: memory and traffic of every rank of a world, computed by one process.
 *
 * The functions that plan a run also compute a rank's figures: its program is compiled, its stored shards are laid out
 * and its program is placed in memory. Ranks with equal programs, except for the numbers of their micro-batches, share
 * one placement. */
#ifndef WEFT_HOST_REPORT_ALL_RANK_PLAN_H
#define WEFT_HOST_REPORT_ALL_RANK_PLAN_H

#include "report/rank_plan.h"

/* Creates an all-rank plan of a training plan. */
weft_status weft_all_rank_plan_create(weft_all_rank_plan **out, const weft_plan *plan, weft_error *err);
void weft_all_rank_plan_destroy(weft_all_rank_plan *all_rank_plan); /* NULL is fine */

/* Writes the bytes that a rank sends to each rank in a step: to [world]. */
void weft_all_rank_plan_links(const weft_all_rank_plan *all_rank_plan, int64_t *to, int32_t rank);

/* Creates the parameter shards of another rank; the caller destroys them. */
weft_status weft_all_rank_plan_hold(weft_hold **out, const weft_plan *plan, int32_t rank, weft_error *err);

#endif
