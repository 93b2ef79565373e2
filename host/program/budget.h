/* host/program/budget.h: the bytes that a plan comes to, line by line: one table of sizes for who counts and who
 * takes. */
#ifndef WEFT_HOST_PROGRAM_BUDGET_H
#define WEFT_HOST_PROGRAM_BUDGET_H

#include "program/plan.h"

const char *weft_account_name(int32_t line); /* "parameters" */

/* Fills plan->bytes. */
void weft_plan_budget(weft_plan *plan);

/* The parts of the buffer of small numbers, each on cache lines of its own, in order. */
typedef enum weft_scalar_part {
    WEFT_SCALAR_NODES = 0,
    WEFT_SCALAR_SQUARES = 1,
    WEFT_SCALAR_COUNT = 2,
    WEFT_SCALAR_COEFFICIENT = 3,
    WEFT_SCALAR_SKIP = 4,
    WEFT_SCALAR_HP = 5,
    WEFT_SCALAR_PAST = 6,
    WEFT_SCALAR_FIRST = 7,
    WEFT_SCALAR_NORM = 8, /* from here on: what the host reads at the end of a pass, at once */
    WEFT_SCALAR_LOSSES = 9,
    WEFT_SCALAR_ALL_LOSSES = 10,
    WEFT_N_SCALAR_PARTS = 11
} weft_scalar_part;
/* Bytes of each; returns their sum. */
int64_t weft_budget_scalars(const weft_plan *plan, int64_t sizes[WEFT_N_SCALAR_PARTS]);

/* First rows of the leaves of a training step, an int64 each: of models that drop elements; 0: of others. */
int64_t weft_budget_first_rows(const weft_plan *plan);
/* Rows of each position table. */
int64_t weft_budget_table_rows(const weft_plan *plan);
/* Of them those of an adapter's prefix, which the places of every text count from; 0: none. */
int64_t weft_budget_prefix_rows(const weft_plan *plan);

/* Trained parameters: rows of the table of ranges, and sums of squares. */
int32_t weft_budget_trained(const weft_plan *plan);

/* Bytes of what else lies fixed. */
int64_t weft_budget_ranges(const weft_plan *plan);
int64_t weft_budget_extents(const weft_plan *plan); /* of the norm (run/norm_extents.h) */
int64_t weft_budget_table(const weft_plan *plan, int32_t table);
int64_t weft_budget_key_values(const weft_plan *plan); /* generation */
int64_t weft_budget_logits(const weft_plan *plan);     /* generation: a row of the vocabulary */

#endif
