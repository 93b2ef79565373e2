/* host/tools/check/jobs.h: jobs with units and segments, drawn from a number, as strategies see them. */
#ifndef WEFT_HOST_TOOLS_CHECK_JOBS_H
#define WEFT_HOST_TOOLS_CHECK_JOBS_H

#include "program/program.h"

enum { WEFT_DRAWN_UNITS = 82, WEFT_DRAWN_SEGMENTS = 82, WEFT_DRAWN_JOBS = 108, WEFT_DRAWN_WORLD = 16 };

typedef struct weft_drawn_job {
    weft_job_spec spec; /* its arrays lie in this struct, so a job is not copied */
    weft_unit_view unit_views[WEFT_DRAWN_UNITS];
    weft_placement placements[WEFT_DRAWN_UNITS];
    weft_segment_view segment_views[WEFT_DRAWN_SEGMENTS];
    weft_segment_sizes segments[WEFT_DRAWN_SEGMENTS];
    weft_unit_sizes units[WEFT_DRAWN_UNITS];
    int32_t reads[WEFT_DRAWN_SEGMENTS][WEFT_DRAWN_UNITS];
    char names[WEFT_DRAWN_SEGMENTS][32], unit_names[WEFT_DRAWN_UNITS][32];
    char says[160]; /* "3 ranks, 2 micro-batches, training, tied, unit 1 frozen" */
} weft_drawn_job;

/* Job `number` in a mode. Below 96: 1 to 8 ranks, 1 to 3 micro-batches, 1 to 6 blocks of one or two segments, with tied
 * storage, frozen units at the bottom and in between, units of several blocks and units that nothing reads among them.
 * From 96 on what chance does not bring: up to 16 ranks, two machines, 80 segments, a unit without a byte, and sizes
 * that no number of ranks divides. Not placed. */
void weft_job_draw(weft_drawn_job *out, uint32_t number, int32_t mode);

#endif
