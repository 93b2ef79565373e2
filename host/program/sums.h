/* host/program/sums.h: byte sizes of a placement: the state of a rank, the exchange buffers of units, and pending
 * gradient sums. */
#ifndef WEFT_HOST_PROGRAM_SUMS_H
#define WEFT_HOST_PROGRAM_SUMS_H

#include "program/plan.h"

/* Computes the bytes of a unit's slots and exchanges under the job's placement. */
void weft_sums_size_units(const weft_plan *plan, weft_job *job);

/* Computes the extents that this rank keeps under the placement of a job. */
weft_status weft_sums_hold(weft_plan *plan, const weft_job_spec *job, weft_error *err);

/* Plans the training program's gradient sums and the bytes of the pending ones. programs: of all ranks. */
weft_status weft_sums_plan(weft_plan *plan, weft_mode_plan *mode_plan, const weft_program *const *programs,
                           weft_error *err);
int64_t weft_sums_partials(const weft_plan *plan); /* bytes */

/* Finds the rank that computes each micro-batch's loss. */
weft_status weft_sums_losses(weft_mode_plan *mode_plan, const weft_program *const *programs, int32_t world,
                             weft_error *err);

/* Returns the byte offset in the gradients' region at which the sums of an exchange of this scope arrive. */
int64_t weft_sums_target(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t scope);

#endif
