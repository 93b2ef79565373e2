/* host/program/job.h: the graphs of a mode; queries on a job that all stages of this folder share; its validation. */
#ifndef WEFT_HOST_PROGRAM_JOB_H
#define WEFT_HOST_PROGRAM_JOB_H

#include "config/settings.h"
#include "model/layout.h"
#include "program/program.h"
#include <weft/data.h>
#include <weft/optimizer.h>

/* ---- the graphs of all segments for one mode and each micro-batch length ---- */

typedef struct weft_graph_set {
    int32_t mode, rows, n_segments, n_lengths;
    int32_t lengths[WEFT_MAX_LENGTHS]; /* ascending */
    weft_graph **graphs;               /* [n_lengths][n_segments] those of a segment read the same parameters */
} weft_graph_set;

/* spec: length and carry_gradient are not read. lengths: [n_lengths], ascending. */
weft_status weft_graph_set_create(weft_graph_set **out, const weft_declared *declared, const weft_graph_spec *spec,
                                  const int32_t *lengths, int32_t n_lengths, weft_error *err);
void weft_graph_set_destroy(weft_graph_set *set); /* NULL is fine */

/* True if the segment reads the parameter, which is the same for all lengths. */
bool weft_graph_set_reads_parameter(const weft_graph_set *set, int32_t segment, int32_t parameter);

/* Returns the graph of a segment for micro-batches of this length. */
const weft_graph *weft_graph_set_at(const weft_graph_set *set, int32_t length, int32_t segment);

/* Return bytes and offsets of a micro-batch on the device: ids, targets, weights, starts, positions. */
#define WEFT_MICRO_BATCH_PARTS 5
int64_t weft_micro_batch_part_bytes(int32_t rows, int32_t length);
int64_t weft_micro_batch_part_offset(int32_t rows, int32_t length, int part);
int64_t weft_micro_batch_bytes(int32_t rows, int32_t length);
/* Binds the arrays of a micro-batch of this shape to its slot, which may be larger. */
void weft_micro_batch_bind(weft_graph_binding *out, weft_slot_ref micro_batch, int32_t rows, int32_t length);

/* ---- storage types of optimizer states and their bytes ---- */

/* Sets the types of the declared state slots according to the key. */
void weft_states_choose(weft_state_slot *slots, int64_t n, weft_states key);

/* Returns the bytes of the states of `elements` elements, a multiple of the block. */
int64_t weft_states_bytes(const weft_state_slot *slots, int64_t n, int64_t elements);

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

/* Sharding of a unit: the world is R replicas, in shard groups of `group` consecutive ranks. */
typedef struct weft_cut {
    int32_t replicas, group, groups; /* groups = replicas / group */
} weft_cut;

weft_cut weft_cut_of(const weft_job_spec *job, int32_t unit);
/* Returns the rank of one of the R chunks of a unit, which are stored in the order of scope ALL. Rank r has index (r %
 * group) * groups + r / group, so the chunks of a shard are contiguous. */
int32_t weft_cut_rank(const weft_cut *cut, int32_t place);

/* Return the size of a scope's group, a rank's index in its group, and whether two ranks share a group. */
int32_t weft_scope_size(const weft_cut *cut, int32_t scope);
int32_t weft_scope_place(const weft_cut *cut, int32_t scope, int32_t rank);
bool weft_scope_together(const weft_cut *cut, int32_t scope, int32_t a, int32_t b);

/* A strided subset of the ranks: first, first + stride, ... */
typedef struct weft_members {
    int32_t first, stride, count; /* count 0: the placement has no such exchange for this rank */
} weft_members;

/* Returns the ranks that participate in a rank's GATHER, REDUCE, REFRESH or NORM of a placed job; count 1: only this
 * rank. */
weft_members weft_job_spec_ranks(const weft_job_spec *job, const weft_instruction *instruction, int32_t rank);

/* Checks that the number of micro-batches is possible, and in training that at least one unit is trained and every
 * trainable unit is read by a segment with a BACKWARD. */
weft_status weft_job_spec_check(const weft_job_spec *job, weft_error *err);

/* Validates the replicas, unit placements and segment owners of a strategy. Each rank is a replica, or one replica is
 * spread over the ranks by owners. A rank that updates part of a unit holds its parameters and its sum. */
weft_status weft_job_spec_check_placement(const weft_job_spec *job, weft_error *err);

/* Checks the owners of the units of a placed job. If segments of several ranks read a trained unit, these ranks are its
 * owner and one other. */
weft_status weft_job_spec_check_owners(const weft_job_spec *job, weft_error *err);

/* ---- the job of a strategy: units and segments with their bytes, from the layout and the graphs (mode_plan.c) ---- */

/* A job and the arrays that it points to. */
typedef struct weft_job {
    weft_job_spec spec;
    weft_unit_view *unit_views;
    weft_placement *placements; /* [n_units] */
    weft_segment_view *segment_views;
    int32_t *segment_units; /* storage of segment_views[].units */
    weft_graph_sizes *segments;
    weft_unit_sizes *units;
} weft_job;

void weft_job_destroy(weft_job *job); /* NULL is fine */

#endif
