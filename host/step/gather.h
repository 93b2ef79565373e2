/* host/step/gather.h: parameters that lie on several ranks, present here in the type that is computed in.
 *
 * The slot of a unit holds, for each of its groups:
 *
 *     in fp32   the group, whole pieces: one all-gather straight into its place
 *     in bf16   the group rounded to bf16, whole pieces: the same; then the gains and biases of each rank's shard in
 *               fp32, a row per rank; then all gains and biases, put together from the rows
 *
 * since gains and biases are read in fp32 always. */
#ifndef WEFT_HOST_STEP_GATHER_H
#define WEFT_HOST_STEP_GATHER_H

#include "step/step.h"

/* True if ranks keep parts of the unit, so that it is computed with from a slot. One of them may keep all of it: a unit
 * of one cell of the grid. */
bool weft_gather_is_due(const weft_job_spec *job, int32_t unit);
/* Bytes of a unit's slot; *sent: that this rank sends in one GATHER. Both 0 where the unit is not cut. */
int64_t weft_gather_bytes(const weft_engine *engine, const weft_job_spec *job, int32_t unit, int64_t *sent);

/* slot: of the program. */
weft_status weft_gather_start(weft_stepper *self, const weft_event *event, int32_t slot, weft_error *err);
/* Once all has come: the segments find the parameters in the slot. */
weft_status weft_gather_finish(weft_stepper *self, const weft_event *event, int32_t slot, weft_error *err);
/* The segments find them no more. */
void weft_gather_forget(weft_stepper *self, const weft_event *event);

#endif
