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

/* True if the rank runs the segment, of a placed job: its owner does, or every rank for its own leaves. */
static inline bool weft_job_spec_runs(const weft_job_spec *job, int32_t segment, int32_t rank) {
    const int32_t owner = job->view.segments[segment].owner;
    return owner < 0 || owner == rank;
}

/* True if units and segments lie with owners: model parallel. */
static inline bool weft_job_spec_owned(const weft_job_spec *job) {
    return job->view.segments[0].owner >= 0;
}

/* The one rank beside its owner that runs a segment which reads the unit; -1: none, or nothing has an owner. */
int32_t weft_job_spec_borrower(const weft_job_spec *job, int32_t unit);

/* Some ranks of the world: first, first + stride, ... */
typedef struct weft_members {
    int32_t first, stride, count; /* count 0: the placement has no such exchange for this rank */
} weft_members;

/* Among which ranks a rank's GATHER, REDUCE, REFRESH or NORM of a placed job exchanges; count 1: this rank alone. */
weft_members weft_job_spec_ranks(const weft_job_spec *job, const weft_event *event, int32_t rank);

/* Counts, strides, and that sizes and views agree with one another; in training, that something is trained and that
 * every trainable unit is read by a segment that has a BACKWARD. */
weft_status weft_job_spec_check(const weft_job_spec *job, weft_error *err);

/* That what the strategy has said of replicas, units and segments goes together, so that programs for it can exist:
 * each rank is a replica, or one replica is spread over the ranks by owners; a rank that updates a part of a unit has
 * its parameters and its sum; and a trained unit that segments of several ranks read is its owner's and one other's. */
weft_status weft_job_spec_check_placed(const weft_job_spec *job, weft_error *err);

#endif
