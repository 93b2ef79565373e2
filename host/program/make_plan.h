/* host/program/make_plan.h: makes a plan: the model and its layout, then the programs of each mode, then the bytes. */
#ifndef WEFT_HOST_PROGRAM_MAKE_PLAN_H
#define WEFT_HOST_PROGRAM_MAKE_PLAN_H

#include "program/plan.h"

/* Declares the model, selects the trained parameters, and lays out the units of the policy. self: zeroed except rank,
 * world and nodes. The caller closes it even after a failure. */
weft_status weft_plan_open(weft_plan *self, const weft_run *run, weft_error *err);

/* Records the base weights of the run's adapters. */
void weft_plan_set_base(weft_plan *plan, const weft_adapter_origin *from);

/* Makes graphs, jobs, the checked programs of all ranks, the state of this rank, and the bytes. states, n_states and
 * hp_bytes are set. The device returns the scratch sizes of its kernels. */
weft_status weft_plan_make(weft_plan *self, const weft_device_plugin *kernels, weft_device *device,
                           const weft_plan_spec *spec, weft_error *err);

/* Makes one mode of the plan. micro_batches: of a step, over all replicas. */
weft_status weft_mode_plan_make(weft_plan *plan, weft_mode_plan *mode_plan, const weft_device_plugin *kernels,
                                weft_device *device, const weft_graph_set_spec *spec, int32_t micro_batches,
                                weft_error *err);

#endif
