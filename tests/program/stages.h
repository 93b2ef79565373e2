/* tests/program/stages.h: a strategy for tests: a pipeline with given stages. gpipe runs all micro-batches forward
 * before the first backward; otherwise micro-batches run one after the other. */
#ifndef WEFT_TESTS_PROGRAM_STAGES_H
#define WEFT_TESTS_PROGRAM_STAGES_H

#include "jobs.h"

#include <weft/emit.h>

typedef struct stages {
    int32_t first[TEAM_MAX + 1]; /* first segment of each rank; then the number of segments */
    int32_t gpipe;
    int32_t late; /* SENDs are awaited only at the end */
} stages;

typedef struct staged {
    weft_emit e;
    const weft_strategy_job *job;
    int32_t rank, lo, hi; /* its segments */
    bool late;
    int32_t sends[256], n;
} staged;

static inline int32_t stage_of(const stages *keys, int32_t s) {
    int32_t rank = 0;
    while (s >= keys->first[rank + 1]) rank++;
    return rank;
}

static inline weft_status stages_replicas(const weft_host *host, const void *config, const weft_strategy_job *job,
                                          int32_t *out, weft_error *err) {
    *out = 1;
    return WEFT_OK;
}

static inline weft_status stages_place(const weft_host *host, const void *config, const weft_strategy_job *job,
                                       weft_placement *units, int32_t *owners, weft_error *err) {
    for (int32_t u = 0; u < job->n_units; u++)
        weft_placement_at(job, units, u)->parameters = weft_placement_at(job, units, u)->gradients =
            weft_placement_at(job, units, u)->optimizer = WEFT_OWNED;
    for (int32_t s = job->n_segments - 1; s >= 0; s--) {
        const weft_segment_view *segment = weft_job_segment(job, s);
        owners[s] = stage_of(config, s);
        for (int32_t i = 0; i < segment->n_units; i++)
            weft_placement_at(job, units, segment->units[i])->owner = owners[s];
    }
    return WEFT_OK;
}

static inline void staged_send(staged *self, int32_t what, int32_t of, int32_t micro_batch, int32_t peer,
                               int32_t queue) {
    const int32_t send = weft_emit_transfer(&self->e, WEFT_INSTRUCTION_SEND, what, of, micro_batch, peer, queue);
    ck_assert_int_lt(self->n, 256);
    self->sends[self->n++] = send;
}

static inline void staged_settle(staged *self) {
    for (int32_t i = 0; i < self->n; i++) weft_emit_wait(&self->e, self->sends[i]);
    self->n = 0;
}

static inline void staged_forward(staged *self, int32_t m) {
    if (!self->late) staged_settle(self);
    if (self->lo > 0)
        (void)weft_emit_transfer(&self->e, WEFT_INSTRUCTION_RECV, WEFT_PAYLOAD_CARRY, self->lo - 1, m,
                                 weft_job_segment(self->job, self->lo - 1)->owner, 0);
    for (int32_t s = self->lo; s < self->hi; s++) weft_emit_forward(&self->e, s, m);
    if (self->hi < self->job->n_segments)
        staged_send(self, WEFT_PAYLOAD_CARRY, self->hi - 1, m, weft_job_segment(self->job, self->hi)->owner, 1);
}

/* Returns the rank other than its owner that reads the unit; -1: no such rank. */
static inline int32_t borrower_of(const weft_strategy_job *job, int32_t u) {
    for (int32_t s = 0; s < job->n_segments; s++)
        if (weft_job_reads(job, s, u) && weft_job_segment(job, s)->owner != weft_job_placement(job, u)->owner)
            return weft_job_segment(job, s)->owner;
    return -1;
}

/* True if no segment of the stage in [from, to) has a BACKWARD that reads the unit. */
static inline bool staged_free(const staged *self, int32_t u, int32_t from, int32_t to) {
    for (int32_t s = from; s < to; s++)
        if (weft_job_segment(self->job, s)->backward && weft_job_reads(self->job, s, u)) return false;
    return true;
}

static inline void staged_units(staged *self, int32_t s, int32_t m, bool before) {
    const weft_segment_view *segment = weft_job_segment(self->job, s);
    for (int32_t i = 0; i < segment->n_units; i++) {
        const int32_t u = segment->units[i], owner = weft_job_placement(self->job, u)->owner;
        const int32_t other = borrower_of(self->job, u);
        if (!weft_job_trains(self->job, u)) continue;
        if (before && owner == self->rank && other >= 0 && staged_free(self, u, s + 1, self->hi))
            (void)weft_emit_transfer(&self->e, WEFT_INSTRUCTION_RECV, WEFT_PAYLOAD_MICRO_BATCH_GRADIENT, u, m, other,
                                     0);
        if (before || !staged_free(self, u, self->lo, s)) continue;
        if (owner == self->rank) (void)weft_emit_reduce(&self->e, u, m, WEFT_SCOPE_RANK, 0);
        else staged_send(self, WEFT_PAYLOAD_MICRO_BATCH_GRADIENT, u, m, owner, 2);
    }
}

static inline void staged_backward(staged *self, int32_t m) {
    if (!weft_job_segment(self->job, self->hi - 1)->backward) return;
    if (!self->late) staged_settle(self);
    if (self->hi < self->job->n_segments)
        (void)weft_emit_transfer(&self->e, WEFT_INSTRUCTION_RECV, WEFT_PAYLOAD_CARRY_GRADIENT, self->hi - 1, m,
                                 weft_job_segment(self->job, self->hi)->owner, 0);
    for (int32_t s = self->hi - 1; s >= self->lo && weft_job_segment(self->job, s)->backward; s--) {
        staged_units(self, s, m, true);
        weft_emit_backward(&self->e, s, m);
        staged_units(self, s, m, false);
    }
    if (self->lo > 0 && weft_job_segment(self->job, self->lo - 1)->backward)
        staged_send(self, WEFT_PAYLOAD_CARRY_GRADIENT, self->lo - 1, m,
                    weft_job_segment(self->job, self->lo - 1)->owner, 3);
}

static inline void staged_train(staged *self, bool gpipe) {
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_COUNT);
    for (int32_t m = 0; m < self->job->micro_batches; m++) {
        staged_forward(self, m);
        if (!gpipe) staged_backward(self, m);
    }
    for (int32_t m = 0; m < self->job->micro_batches && gpipe; m++) staged_backward(self, m);
    staged_settle(self);
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_NORM);
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_STEP);
    for (int32_t u = 0; u < self->job->n_units; u++)
        if (weft_job_trains(self->job, u) && borrower_of(self->job, u) >= 0 &&
            (borrower_of(self->job, u) == self->rank || weft_job_placement(self->job, u)->owner == self->rank))
            weft_emit_wait(&self->e, weft_emit_refresh(&self->e, u, 1));
}

static inline weft_status stages_compile(const weft_host *host, const void *config, const weft_strategy_job *job,
                                         int32_t rank, const weft_emitter *emitter, weft_error *err) {
    const stages *keys = config;
    staged self = {.e = weft_emit_begin(emitter), .job = job, .rank = rank, .late = keys->late};
    self.lo = keys->first[rank];
    self.hi = keys->first[rank + 1];
    if (job->mode == WEFT_MODE_TRAIN) staged_train(&self, keys->gpipe);
    else staged_forward(&self, 0);
    staged_settle(&self);
    return weft_emit_end(&self.e, err);
}

/* firsts: "0 1 3" are the first segments of three ranks. */
static inline void load_stages(strategy *out, const char *firsts, bool gpipe, bool late) {
    static const weft_strategy_plugin table = {(uint32_t)sizeof(weft_strategy_plugin), 0, stages_replicas, stages_place,
                                               stages_compile};
    stages keys = {.gpipe = gpipe, .late = late};
    int32_t n = 0;
    for (const char *at = firsts; at != NULL; at = strchr(at, ' ') == NULL ? NULL : strchr(at, ' ') + 1)
        keys.first[n++] = atoi(at);
    while (n <= TEAM_MAX) keys.first[n++] = TINY_SEGMENTS;
    memset(out, 0, sizeof *out);
    out->table = &table;
    memcpy(out->config, &keys, sizeof keys);
}

#endif
