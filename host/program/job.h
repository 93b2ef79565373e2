/* host/program/job.h: questions that every stage of this folder asks of a job, and whether the job makes sense at all.
 */
#ifndef WEFT_HOST_PROGRAM_JOB_H
#define WEFT_HOST_PROGRAM_JOB_H

#include "program/program.h"

/* Leaves of one step: R * A in training, else one per replica. */
static inline int32_t weft_job_spec_leaves(const weft_job_spec *job) {
    return job->view.replicas * (job->view.mode == WEFT_MODE_TRAIN ? job->view.leaves : 1);
}

/* True if the segment has a BACKWARD in this job. */
static inline bool weft_job_spec_backward(const weft_job_spec *job, int32_t segment) {
    return job->view.mode == WEFT_MODE_TRAIN && job->segments[segment].has_backward;
}

/* True if the unit has a leaf gradient in this job. */
static inline bool weft_job_spec_trains(const weft_job_spec *job, int32_t unit) {
    return job->view.mode == WEFT_MODE_TRAIN && job->units[unit].gradient > 0;
}

bool weft_job_spec_reads(const weft_job_spec *job, int32_t segment, int32_t unit);

/* Counts, strides, and that sizes and views agree with one another; in training, that something is trained and that
 * every trainable unit is read by a segment that has a BACKWARD. */
weft_status weft_job_spec_check(const weft_job_spec *job, weft_error *err);

#endif
