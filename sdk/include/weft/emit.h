/* weft/emit.h: helpers for strategies: views of a job by index, micro-batch numberings, and emitters with sticky
 * errors.
 *
 * A strategy emits its complete program and checks once, at the end, whether the host accepted it.
 *
 *     weft_emit e = weft_emit_begin(emitter);
 *     weft_emit_forward(&e, s, micro-batch);
 *     ...
 *     return weft_emit_end(&e, err);
 */
#ifndef WEFT_EMIT_H
#define WEFT_EMIT_H

#include <weft/strategy.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the job ---- */

static inline const weft_segment_view *weft_job_segment(const weft_strategy_job *job, int32_t s) {
    return (const weft_segment_view *)(const void *)((const char *)job->segments + (size_t)s * job->segment_stride);
}

static inline const weft_unit_view *weft_job_unit(const weft_strategy_job *job, int32_t u) {
    return (const weft_unit_view *)(const void *)((const char *)job->units + (size_t)u * job->unit_stride);
}

static inline const weft_placement *weft_job_placement(const weft_strategy_job *job, int32_t u) {
    const char *at = (const char *)job->placements + (size_t)u * job->placement_stride;
    return (const weft_placement *)(const void *)at;
}

/* Returns the placement of a unit in the array that `place` fills. */
static inline weft_placement *weft_placement_at(const weft_strategy_job *job, weft_placement *units, int32_t u) {
    return (weft_placement *)(void *)((char *)units + (size_t)u * job->placement_stride);
}

static inline int weft_job_reads(const weft_strategy_job *job, int32_t s, int32_t unit) {
    const weft_segment_view *segment = weft_job_segment(job, s);
    int32_t i;
    for (i = 0; i < segment->n_units; i++)
        if (segment->units[i] == unit) return 1;
    return 0;
}

static inline int weft_job_trains(const weft_strategy_job *job, int32_t unit) {
    return job->mode == WEFT_MODE_TRAIN && weft_job_unit(job, unit)->gradient_bytes > 0;
}

/* Returns the last segment that reads the unit in the forward pass, or -1. After its FORWARD the parameters are
 * unused. */
static inline int32_t weft_job_last_reader(const weft_strategy_job *job, int32_t unit) {
    int32_t s = job->n_segments - 1;
    while (s >= 0 && !weft_job_reads(job, s, unit)) s--;
    return s;
}

/* Returns the lowest segment with a BACKWARD that reads the unit, or -1. After it the micro-batch's gradient of the
 * unit is complete. */
static inline int32_t weft_job_completes(const weft_strategy_job *job, int32_t unit) {
    int32_t s = 0;
    while (s < job->n_segments && !(weft_job_segment(job, s)->backward && weft_job_reads(job, s, unit))) s++;
    return s < job->n_segments ? s : -1;
}

/* Returns the number of micro-batch a (0 .. A - 1) of replica r if every micro-batch is reduced separately: ordered by
 * micro-step, then replica. */
static inline int32_t weft_job_micro_batch(const weft_strategy_job *job, int32_t replica, int32_t a) {
    return a * job->replicas + replica;
}

/* Returns the same if a replica first sums its own micro-batches: ordered by replica, then micro-step. */
static inline int32_t weft_job_micro_batch_last(const weft_strategy_job *job, int32_t replica, int32_t a) {
    return replica * job->micro_batches + a;
}

/* Returns the same if groups of `group` replicas first sum each micro-step, and the groups are reduced last. */
static inline int32_t weft_job_micro_batch_hops(const weft_strategy_job *job, int32_t replica, int32_t a,
                                                int32_t group) {
    return (replica / group * job->micro_batches + a) * group + replica % group;
}

/* ---- instructions ---- */

typedef struct weft_emit {
    const weft_emitter *to;
    int32_t failed, reserved;
} weft_emit;

static inline weft_emit weft_emit_begin(const weft_emitter *emitter) {
    weft_emit e;
    e.to = emitter;
    e.failed = e.reserved = 0;
    return e;
}

static inline weft_status weft_emit_end(const weft_emit *e, weft_error *err) {
    if (!e->failed) return WEFT_OK;
    return weft_error_set(err, WEFT_E_MEMORY, "the host could not take another instruction of the step program");
}

/* Returns an instruction of the given kind with all other fields unset. */
static inline weft_instruction weft_instruction_of(int32_t kind) {
    weft_instruction instruction;
    memset(&instruction, 0, sizeof instruction);
    instruction.struct_size = (uint32_t)sizeof instruction;
    instruction.kind = kind;
    instruction.unit = instruction.segment = instruction.micro_batch = instruction.peer = instruction.waits =
        instruction.what = instruction.scope = -1;
    return instruction;
}

/* Returns the instruction's index, or -1 after the host has rejected one. */
static inline int32_t weft_emit_instruction(weft_emit *e, const weft_instruction *instruction) {
    const int32_t index = e->failed ? -1 : e->to->emit(e->to->program, instruction);
    if (index < 0) e->failed = 1;
    return index;
}

/* Emits COUNT, NORM or STEP. */
static inline void weft_emit_plain(weft_emit *e, int32_t kind) {
    const weft_instruction instruction = weft_instruction_of(kind);
    (void)weft_emit_instruction(e, &instruction);
}

static inline void weft_emit_segment(weft_emit *e, int32_t kind, int32_t segment, int32_t micro_batch) {
    weft_instruction instruction = weft_instruction_of(kind);
    instruction.segment = segment;
    instruction.micro_batch = micro_batch;
    (void)weft_emit_instruction(e, &instruction);
}

static inline void weft_emit_forward(weft_emit *e, int32_t segment, int32_t micro_batch) {
    weft_emit_segment(e, WEFT_INSTRUCTION_FORWARD, segment, micro_batch);
}

static inline void weft_emit_backward(weft_emit *e, int32_t segment, int32_t micro_batch) {
    weft_emit_segment(e, WEFT_INSTRUCTION_BACKWARD, segment, micro_batch);
}

/* Returns the instruction's index for its WAIT; with queue 0 no WAIT is needed. */
static inline int32_t weft_emit_reduce(weft_emit *e, int32_t unit, int32_t micro_batch, int32_t scope, int32_t queue) {
    weft_instruction instruction = weft_instruction_of(WEFT_INSTRUCTION_REDUCE);
    instruction.unit = unit;
    instruction.micro_batch = micro_batch;
    instruction.scope = scope;
    instruction.queue = queue;
    return weft_emit_instruction(e, &instruction);
}

static inline int32_t weft_emit_gather(weft_emit *e, int32_t unit, int32_t what, int32_t queue) {
    weft_instruction instruction = weft_instruction_of(WEFT_INSTRUCTION_GATHER);
    instruction.unit = unit;
    instruction.what = what;
    instruction.queue = queue;
    return weft_emit_instruction(e, &instruction);
}

static inline void weft_emit_release(weft_emit *e, int32_t unit) {
    weft_instruction instruction = weft_instruction_of(WEFT_INSTRUCTION_RELEASE);
    instruction.unit = unit;
    (void)weft_emit_instruction(e, &instruction);
}

static inline int32_t weft_emit_refresh(weft_emit *e, int32_t unit, int32_t queue) {
    weft_instruction instruction = weft_instruction_of(WEFT_INSTRUCTION_REFRESH);
    instruction.unit = unit;
    instruction.queue = queue;
    return weft_emit_instruction(e, &instruction);
}

/* Emits SEND or RECV of a carry or its gradient (segment), or of a part of a micro-batch's gradient (unit). */
static inline int32_t weft_emit_transfer(weft_emit *e, int32_t kind, int32_t what, int32_t of, int32_t micro_batch,
                                         int32_t peer, int32_t queue) {
    weft_instruction instruction = weft_instruction_of(kind);
    if (what == WEFT_PAYLOAD_MICRO_BATCH_GRADIENT) instruction.unit = of;
    else instruction.segment = of;
    instruction.what = what;
    instruction.micro_batch = micro_batch;
    instruction.peer = peer;
    instruction.queue = queue;
    return weft_emit_instruction(e, &instruction);
}

/* Ends an instruction of another queue; ignores index -1. */
static inline void weft_emit_wait(weft_emit *e, int32_t index) {
    weft_instruction instruction = weft_instruction_of(WEFT_INSTRUCTION_WAIT);
    instruction.waits = index;
    if (index >= 0) (void)weft_emit_instruction(e, &instruction);
}

#ifdef __cplusplus
}
#endif
#endif
