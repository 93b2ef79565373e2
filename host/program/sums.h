/* host/program/sums.h: what a placement comes to in bytes: what a rank keeps, what units need on their way, and the
 * sums that wait for others. */
#ifndef WEFT_HOST_PROGRAM_SUMS_H
#define WEFT_HOST_PROGRAM_SUMS_H

#include "program/plan.h"

/* Bytes of a unit's slots and exchanges under the job's placement. */
void weft_sums_size_units(const weft_plan *plan, weft_job *job);

/* What this rank keeps, by the placement of a job. */
weft_status weft_sums_hold(weft_plan *plan, const weft_job_spec *job, weft_error *err);

/* How the training program's sums are made, and the bytes of those that wait. programs: of all ranks. */
weft_status weft_sums_plan(weft_plan *plan, weft_stage *stage, const weft_program *const *programs, weft_error *err);
int64_t weft_sums_partials(const weft_plan *plan); /* bytes */

/* Where every leaf's loss is made. */
weft_status weft_sums_losses(weft_stage *stage, const weft_program *const *programs, int32_t world, weft_error *err);

/* Where in the gradients' region the sums of an exchange of this scope arrive, in bytes. */
int64_t weft_sums_target(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t scope);

#endif
