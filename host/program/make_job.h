/* host/program/make_job.h: the job that a strategy is asked to compile: units and segments with their bytes, from the
 * layout and the graphs. */
#ifndef WEFT_HOST_PROGRAM_MAKE_JOB_H
#define WEFT_HOST_PROGRAM_MAKE_JOB_H

#include "model/layout.h"
#include "program/graphs.h"
#include "program/program.h"
#include <weft/optimizer.h>

/* A job and the arrays that it points to. */
typedef struct weft_job {
    weft_job_spec spec;
    weft_unit_view *unit_views;
    weft_placement *placements; /* [n_units] */
    weft_segment_view *segment_views;
    int32_t *segment_units; /* storage of segment_views[].units */
    weft_segment_sizes *segments;
    weft_unit_sizes *units;
} weft_job;

/* micro-batches: A. states: that the optimizer keeps of each trainable element. */
weft_status weft_job_create(weft_job **out, const weft_graph_set *set, const weft_declared *declared,
                            const weft_layout *layout, int32_t micro_batches, const weft_state_slot *states,
                            int64_t n_states, bool activation_checkpointing, weft_error *err);
void weft_job_destroy(weft_job *job); /* NULL is fine */

#endif
