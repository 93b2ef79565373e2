/* host/program/copies.h: the compute copy: what products read where the model computes in bf16.
 *
 * The masters are fp32 and are what is updated, saved and hashed. Of each matrix that products read a rounded copy lies
 * beside them for the whole run, made again from the masters whenever those change: after a load, and at the end of
 * STEP. Gains are read from the masters, and so are tables that are looked up and nothing else: a look-up rounds what
 * it takes, to the same bits. In fp32 there is no copy: products read the masters. Of gains and biases that are stored
 * in bf16 ([train] weights) a widened copy lies here in the same way.
 *
 * Which parameters have a copy is decided here; run/compute.h makes them. */
#ifndef WEFT_HOST_PROGRAM_COPIES_H
#define WEFT_HOST_PROGRAM_COPIES_H

#include "program/plan.h"

/* True if products read a copy of this parameter that lies here for the whole run. */
bool weft_copies_has(const weft_plan *plan, const weft_parameter *parameter);

/* weft_dtype of the copy. */
int32_t weft_copies_dtype(const weft_plan *plan, const weft_parameter *parameter);

/* Of one parameter's copy, on the layout's grid. */
int64_t weft_copies_bytes_of(const weft_plan *plan, const weft_parameter *parameter);

/* Bytes of all copies; 0 in fp32. */
int64_t weft_copies_bytes(const weft_plan *plan);

/* Bytes that a refresh after a step reads and writes. */
int64_t weft_copies_traffic(const weft_plan *plan);

#endif
