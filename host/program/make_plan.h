/* host/program/make_plan.h: making a plan: the model and its layout first, then each mode's programs, then the
 * bytes. */
#ifndef WEFT_HOST_PROGRAM_MAKE_PLAN_H
#define WEFT_HOST_PROGRAM_MAKE_PLAN_H

#include "program/plan.h"

/* The model as it is declared, what of it is trained, and its layout by the policy. self: zeroed but for rank, world
 * and nodes; to be closed also where this fails. */
weft_status weft_plan_open(weft_plan *self, const weft_run *run, weft_error *err);

/* Records which base the run's adapters are made on. */
void weft_plan_set_base(weft_plan *plan, const weft_adapter_origin *from);

/* Graphs, jobs, programs (of all ranks, checked together), what this rank keeps, and the bytes. states, n_states and
 * hp_bytes are there. The device is asked for the scratch of its kernels. */
weft_status weft_plan_make(weft_plan *self, const weft_device_plugin *kernels, weft_device *device,
                           const weft_plan_spec *spec, weft_error *err);

#endif
