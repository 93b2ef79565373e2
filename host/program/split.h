/* host/program/split.h: splits units at the boundaries between ranks that own segments.
 *
 * A policy creates units without knowledge of ranks. If a strategy assigns segments to ranks, a unit may contain
 * only parameters of its rank. Each parameter is assigned to the rank of its first user. Parameters that other ranks
 * also use (tied storage) get their own units, so that copies contain only them. */
#ifndef WEFT_HOST_PROGRAM_SPLIT_H
#define WEFT_HOST_PROGRAM_SPLIT_H

#include "program/plan.h"

/* Splits the units of the plan's layout by the owners of the placed job's segments. Sets *out to true if the layout
 * changed; the job must then be made and placed again. */
weft_status weft_split_units(bool *out, weft_plan *plan, const weft_mode_plan *mode_plan, weft_error *err);

/* Copies the owners of segments for weft_split_check. The caller frees *out. */
weft_status weft_split_owners(int32_t **out, const weft_job *job, weft_error *err);
/* Fails if the strategy places segments differently than before the split. */
weft_status weft_split_check(const weft_job *job, const int32_t *owners, weft_error *err);

#endif
