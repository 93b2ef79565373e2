/* host/program/job.h: queries on a job that all stages of this folder share, and the validation of a job. */
#ifndef WEFT_HOST_PROGRAM_JOB_H
#define WEFT_HOST_PROGRAM_JOB_H

#include "program/program.h"

/* Returns the micro-batches of one step: R * A in training, otherwise one per replica. */
static inline int32_t weft_job_spec_micro_batches(const weft_job_spec *job) {
    return job->view.replicas * (job->view.mode == WEFT_MODE_TRAIN ? job->view.micro_batches : 1);
}

/* True if the segment has a BACKWARD in this job. */
static inline bool weft_job_spec_backward(const weft_job_spec *job, int32_t segment) {
    return job->view.mode == WEFT_MODE_TRAIN && job->segments[segment].has_backward;
}

/* True if the unit has a micro-batch gradient in this job. */
static inline bool weft_job_spec_trains(const weft_job_spec *job, int32_t unit) {
    return job->view.mode == WEFT_MODE_TRAIN && job->units[unit].gradient > 0;
}

bool weft_job_spec_reads(const weft_job_spec *job, int32_t segment, int32_t unit);

/* True if the rank runs the segment of a placed job: the owner, or without an owner every rank for its own
 * micro-batches. */
static inline bool weft_job_spec_runs(const weft_job_spec *job, int32_t segment, int32_t rank) {
    const int32_t owner = job->view.segments[segment].owner;
    return owner < 0 || owner == rank;
}

/* True if units and segments have owners: model parallelism. */
static inline bool weft_job_spec_owned(const weft_job_spec *job) {
    return job->view.segments[0].owner >= 0;
}

/* Returns the only non-owner rank that runs a segment reading the unit; -1: no such rank, or no owners. */
int32_t weft_job_spec_borrower(const weft_job_spec *job, int32_t unit);

/* A strided subset of the ranks: first, first + stride, ... */
typedef struct weft_members {
    int32_t first, stride, count; /* count 0: the placement has no such exchange for this rank */
} weft_members;

/* Returns the ranks that take part in a rank's GATHER, REDUCE, REFRESH or NORM of a placed job; count 1: only this
 * rank. */
weft_members weft_job_spec_ranks(const weft_job_spec *job, const weft_instruction *instruction, int32_t rank);

/* Checks counts, strides, and that sizes match views. In training, at least one unit is trained, and every trainable
 * unit is read by a segment with a BACKWARD. */
weft_status weft_job_spec_check(const weft_job_spec *job, weft_error *err);

/* Checks that the strategy's replicas, unit placements and segment owners allow programs to exist. Each rank is a
 * replica, or one replica is spread over the ranks by owners. A rank that updates part of a unit holds its
 * parameters and its sum. If segments of several ranks read a trained unit, these are its owner and one other rank. */
weft_status weft_job_spec_check_placed(const weft_job_spec *job, weft_error *err);

#endif
