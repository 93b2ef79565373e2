/* host/program/copies.h: the compute copies: bf16 matrices that matmuls read if the model computes in bf16.
 *
 * The masters are fp32; they are updated, saved and hashed. Each matrix used in a matmul has a rounded copy for the
 * whole run. It is refreshed from the masters after a load and at the end of STEP. Gains and look-up-only tables are
 * read from the masters; a look-up rounds to the same bits. In fp32 there is no copy: matmuls read the masters. Gains
 * and biases stored in bf16 ([train] weights) have a widened copy in the same way.
 *
 * This file selects the parameters that have a copy; run/compute.h makes the copies. */
#ifndef WEFT_HOST_PROGRAM_COPIES_H
#define WEFT_HOST_PROGRAM_COPIES_H

#include "program/plan.h"

/* True if matmuls read a persistent copy of this parameter. */
bool weft_copies_has(const weft_plan *plan, const weft_parameter *parameter);

/* Returns the weft_dtype of the copy. */
int32_t weft_copies_dtype(const weft_plan *plan, const weft_parameter *parameter);

/* Returns the bytes of one parameter's copy, on the layout's grid. */
int64_t weft_copies_bytes_of(const weft_plan *plan, const weft_parameter *parameter);

/* Returns the bytes of all copies; 0 in fp32. */
int64_t weft_copies_bytes(const weft_plan *plan);

/* Returns the bytes that a refresh after a step reads and writes. */
int64_t weft_copies_traffic(const weft_plan *plan);

#endif
