/* host/program/budget.h: the bytes of a plan, line by line. The accounting and the allocation use the same sizes. */
#ifndef WEFT_HOST_PROGRAM_BUDGET_H
#define WEFT_HOST_PROGRAM_BUDGET_H

#include "program/plan.h"

const char *weft_account_name(int32_t line); /* "parameters" */

/* Fills plan->bytes. */
void weft_plan_budget(weft_plan *plan);

/* The sections of the scalar buffer, in order. Each starts on its own cache line. */
typedef enum weft_scalar_part {
    WEFT_SCALAR_NODES = 0,
    WEFT_SCALAR_SQUARES = 1,
    WEFT_SCALAR_COUNT = 2,
    WEFT_SCALAR_COEFFICIENT = 3,
    WEFT_SCALAR_SKIP = 4,
    WEFT_SCALAR_HP = 5,
    WEFT_SCALAR_PAST = 6,
    WEFT_SCALAR_FIRST = 7,
    WEFT_SCALAR_NORM = 8, /* from here on: read by the host at the end of a pass, in one copy */
    WEFT_SCALAR_LOSSES = 9,
    WEFT_SCALAR_ALL_LOSSES = 10,
    WEFT_N_SCALAR_PARTS = 11
} weft_scalar_part;
/* Computes the bytes of each section and returns their sum. */
int64_t weft_budget_scalars(const weft_plan *plan, int64_t sizes[WEFT_N_SCALAR_PARTS]);

/* Returns the bytes of the first-row indices of the micro-batches of a step, one int64 each; 0 without dropout. */
int64_t weft_budget_first_rows(const weft_plan *plan);
/* Returns the rows of each position table. */
int64_t weft_budget_table_rows(const weft_plan *plan);
/* Returns the rows of an adapter's prefix, the offset of all text positions; 0: no prefix. */
int64_t weft_budget_prefix_rows(const weft_plan *plan);

/* Returns the number of trained parameters: rows of the table of ranges, and sums of squares. */
int32_t weft_budget_trained(const weft_plan *plan);

/* Return the bytes of the other fixed buffers. */
int64_t weft_budget_ranges(const weft_plan *plan);
int64_t weft_budget_extents(const weft_plan *plan); /* for the gradient norm (run/norm_extents.h) */
int64_t weft_budget_table(const weft_plan *plan, int32_t table);
int64_t weft_budget_key_values(const weft_plan *plan); /* generation */
int64_t weft_budget_logits(const weft_plan *plan);     /* generation: one row of logits */

#endif
