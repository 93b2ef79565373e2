/* host/train/all_rank_plan.h: memory and programs of every rank of a world, computed by one process.
 *
 * The functions that plan a run also compute a rank's memory: its program is compiled, its stored shards are laid out
 * and its program is placed in memory. Ranks with equal programs, except for the numbers of their micro-batches, share
 * one placement. */
#ifndef WEFT_HOST_TRAIN_ALL_RANK_PLAN_H
#define WEFT_HOST_TRAIN_ALL_RANK_PLAN_H

#include "program/plan.h"

typedef struct weft_all_rank_plan {
    weft_plan_bytes *bytes;        /* [world] */
    const weft_program **programs; /* [world] of training */
    int32_t world, nodes, ranks_per_node;
} weft_all_rank_plan;

/* Creates an all-rank plan of a training plan. */
weft_status weft_all_rank_plan_create(weft_all_rank_plan **out, const weft_plan *plan, weft_error *err);
void weft_all_rank_plan_destroy(weft_all_rank_plan *all_rank_plan); /* NULL is fine */

#endif
