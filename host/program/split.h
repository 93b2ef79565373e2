/* host/program/split.h: units that are cut where the ranks that run segments change.
 *
 * A policy makes units without knowing ranks. Where a strategy gives segments to ranks, what lies in a unit of a rank's
 * must be used by that rank: each parameter goes with the rank of its first user, and those that other ranks use as
 * well (tied storage) go apart, so that copies hold nothing else. */
#ifndef WEFT_HOST_PROGRAM_SPLIT_H
#define WEFT_HOST_PROGRAM_SPLIT_H

#include "program/plan.h"

/* Cuts the plan's layout by the owners of the placed job's segments. *out: whether that changed it, so that the job
 * has to be made and placed again. */
weft_status weft_split_units(bool *out, weft_plan *plan, const weft_stage *stage, weft_error *err);

/* Owners of segments, for asking again: *out is the caller's to free. */
weft_status weft_split_owners(int32_t **out, const weft_job *job, weft_error *err);
/* The strategy has to place segments as it did before the cut. */
weft_status weft_split_check(const weft_job *job, const int32_t *owners, weft_error *err);

#endif
