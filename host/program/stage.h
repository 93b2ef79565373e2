/* host/program/stage.h: one mode of a plan: its graphs are recorded, its job is placed, the programs of all ranks are
 * compiled and judged, and this rank's is placed in memory. */
#ifndef WEFT_HOST_PROGRAM_STAGE_H
#define WEFT_HOST_PROGRAM_STAGE_H

#include "program/plan.h"

/* What a stage is made for, and the device that says how much scratch its kernels want. */
typedef struct weft_stage_maker {
    weft_plan *plan;
    const weft_device_plugin *kernels;
    weft_device *device;
} weft_stage_maker;

/* leaves: of a step, all replicas together. */
weft_status weft_stage_make(const weft_stage_maker *maker, weft_stage *stage, const weft_graph_set_spec *spec,
                            int32_t leaves, weft_error *err);

#endif
