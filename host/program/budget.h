/* host/program/budget.h: the bytes of a plan, line by line. The accounting and the allocation use the same sizes. */
#ifndef WEFT_HOST_PROGRAM_BUDGET_H
#define WEFT_HOST_PROGRAM_BUDGET_H

#include "program/plan.h"

/* ---- compute copies: the bf16 matrices that matmuls read if the model computes in bf16 ----
 *
 * The masters are fp32; they are updated, saved and hashed. Each matrix used in a matmul has a rounded copy for the
 * whole run, made after a load. STEP's update writes it if this rank updates the complete parameter; otherwise it is
 * refreshed after REFRESH. Gains and look-up-only tables are read from the masters; a look-up rounds to the same bits.
 * In fp32 there is no copy. Gains and biases stored in bf16 ([train] weights) have a widened copy in the same way.
 *
 * This file selects the parameters that have a copy; run/engine.c makes the copies. */

/* True if matmuls read a persistent copy of this parameter. */
bool weft_copies_has(const weft_plan *plan, const weft_parameter *parameter);

/* Returns the weft_dtype of the copy. */
int32_t weft_copies_dtype(const weft_plan *plan, const weft_parameter *parameter);

/* Returns the bytes of one parameter's copy, on the layout's grid. */
int64_t weft_copies_bytes_of(const weft_plan *plan, const weft_parameter *parameter);

/* Returns the bytes of all copies; 0 in fp32. */
int64_t weft_copies_bytes(const weft_plan *plan);

/* True if STEP's update writes the parameter's copy. */
bool weft_copies_in_update(const weft_plan *plan, const weft_parameter *parameter);

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
/* Returns the rows of an adapter's prefix, the offset of all text positions; 0: no prefix. */
int64_t weft_budget_prefix_rows(const weft_plan *plan);

/* Returns the number of trained parameters: rows of the table of ranges, and sums of squares. */
int32_t weft_budget_trained(const weft_plan *plan);

/* Return the bytes of the other fixed buffers. */
int64_t weft_budget_ranges(const weft_plan *plan);
int64_t weft_budget_extents(const weft_plan *plan); /* for the gradient norm (run/engine.c) */
int64_t weft_budget_table(const weft_plan *plan, int32_t table);
int64_t weft_budget_key_values(const weft_plan *plan); /* generation */
int64_t weft_budget_logits(const weft_plan *plan);     /* generation: one row of logits */

/* ---- memory of asynchronous checkpoints ----
 *
 * An asynchronous checkpoint is written from a copy of the rank's state (run/save.c). The copy is complete,
 * because the next step changes all of the state at once. Frozen parameters never change: they are not copied if the
 * host sees the device's memory. */

/* Returns the bytes of the copy of the parameters, from their region's start. */
int64_t weft_save_place_parameters(const weft_plan *plan);
/* Returns the bytes of the complete copy, with each part at the alignment of device buffers. */
int64_t weft_save_place_bytes(const weft_plan *plan);

/* Sets plan->saves and plan->visible from [checkpoint] async. With auto, checkpoints are asynchronous if the device
 * has its own memory and the copies of all ranks of this machine need at most half of the machine's memory. */
void weft_save_place_decide(weft_plan *plan, const weft_device_plugin *kernels, const weft_device *device);

#endif
