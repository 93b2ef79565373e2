/* host/program/mode_plan.h: one mode of a plan: its graphs are recorded, its job is placed, the programs of all
 * ranks are compiled and judged, and this rank's is placed in memory. */
#ifndef WEFT_HOST_PROGRAM_MODE_PLAN_H
#define WEFT_HOST_PROGRAM_MODE_PLAN_H

#include "program/plan.h"

/* What a stage is made for, and the device that says how much scratch its kernels want. */
typedef struct weft_mode_plan_maker {
    weft_plan *plan;
    const weft_device_plugin *kernels;
    weft_device *device;
} weft_mode_plan_maker;

/* micro-batches: of a step, all replicas together. */
weft_status weft_mode_plan_make(const weft_mode_plan_maker *maker, weft_mode_plan *mode_plan,
                                const weft_graph_set_spec *spec, int32_t micro_batches, weft_error *err);

#endif
