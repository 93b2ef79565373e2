/* program.c: the instructions of one rank under fsdp.
 *
 * A unit with sharded parameters is gathered for a segment that reads it, and released after the last such segment; the
 * host moves gathers ahead (prefetch). Gradients are reduced as in ddp, with one collective in flight during backward,
 * but each rank receives only its shard of the sum. Parameters that are replicated with a sharded optimizer state are
 * gathered again after the update. */
#include "fsdp.h"

#define REDUCE_QUEUE  1
#define REFRESH_QUEUE 1

enum { REDUCE_AT_EACH, REDUCE_AT_LAST };

typedef struct fsdp {
    weft_emit e;
    const weft_strategy_job *job;
    const fsdp_config *keys;
    fsdp_shard shard;
    int32_t rank, group;
    int32_t last;           /* reduce_at = last */
    int32_t hops;           /* two hops: first the shard group, then across groups */
    int32_t *live;          /* [n_units] gathered and not released */
    int32_t reduce, gather; /* instructions in flight; -1: idle */
    int32_t finishing;      /* unit of the final sum that `reduce` computes; -1: not a final sum */
} fsdp;

/* ---- micro-batches ---- */

static int32_t micro_batch_of(const fsdp *self, int32_t a) {
    if (self->job->mode != WEFT_MODE_TRAIN) return self->rank;
    if (self->hops) return weft_job_micro_batch_hops(self->job, self->rank, a, self->group);
    return self->last ? weft_job_micro_batch_last(self->job, self->rank, a)
                      : weft_job_micro_batch(self->job, self->rank, a);
}

/* ---- parameters ---- */

static int is_cut(const fsdp *self, int32_t unit) {
    return weft_job_placement(self->job, unit)->parameters == WEFT_SHARDED;
}

static void gather_for(fsdp *self, int32_t s) {
    const weft_segment_view *segment = weft_job_segment(self->job, s);
    int32_t i;
    for (i = 0; i < segment->n_units; i++) {
        const int32_t unit = segment->units[i];
        if (!is_cut(self, unit) || self->live[unit]) continue;
        (void)weft_emit_gather(&self->e, unit, WEFT_PAYLOAD_PARAMETERS, 0);
        self->live[unit] = 1;
    }
}

static void release(fsdp *self, int32_t unit) {
    if (!self->live[unit]) return;
    weft_emit_release(&self->e, unit);
    self->live[unit] = 0;
}

/* The first segment of backward reuses the gathered parameters of the last forward segment. */
static int keeps(const fsdp *self, int32_t unit) {
    if (self->job->mode != WEFT_MODE_TRAIN) return 0;
    return !self->keys->reshard_after_forward || weft_job_reads(self->job, self->job->n_segments - 1, unit);
}

static void forward(fsdp *self, int32_t micro_batch) {
    int32_t s, i;
    for (s = 0; s < self->job->n_segments; s++) {
        const weft_segment_view *segment = weft_job_segment(self->job, s);
        gather_for(self, s);
        weft_emit_forward(&self->e, s, micro_batch);
        for (i = 0; i < segment->n_units; i++)
            if (weft_job_last_reader(self->job, segment->units[i]) == s && !keeps(self, segment->units[i]))
                release(self, segment->units[i]);
    }
}

/* ---- gradients ---- */

/* Waits for the instructions in flight, and starts the gather of a final sum that other ranks also store. */
static void advance(fsdp *self) {
    weft_emit_wait(&self->e, self->gather);
    weft_emit_wait(&self->e, self->reduce);
    self->gather = self->finishing < 0 || self->group == self->job->world
                       ? -1
                       : weft_emit_gather(&self->e, self->finishing, WEFT_PAYLOAD_SUM, REDUCE_QUEUE);
    self->reduce = self->finishing = -1;
}

static void hop(fsdp *self, int32_t unit, int32_t micro_batch, int32_t scope) {
    advance(self);
    self->reduce = weft_emit_reduce(&self->e, unit, micro_batch, scope, REDUCE_QUEUE);
}

/* Adds a complete micro-batch gradient to the sum; the last one completes it. */
static void reduce(fsdp *self, int32_t unit, int32_t a) {
    const int32_t finishes = a == self->job->micro_batches - 1, micro_batch = micro_batch_of(self, a);
    if (self->hops) hop(self, unit, micro_batch, WEFT_SCOPE_NODE);
    else if (self->last) (void)weft_emit_reduce(&self->e, unit, micro_batch, WEFT_SCOPE_RANK, 0);
    else hop(self, unit, micro_batch, WEFT_SCOPE_ALL);
    if (!finishes) return;
    if (self->hops) hop(self, unit, -1, WEFT_SCOPE_ACROSS);
    else if (self->last) hop(self, unit, -1, WEFT_SCOPE_ALL);
    self->finishing = unit;
}

/* True if s is the lowest segment of backward that reads the unit. */
static int is_done_at(const fsdp *self, int32_t unit, int32_t s) {
    int32_t below;
    for (below = s - 1; below >= 0 && weft_job_segment(self->job, below)->backward; below--)
        if (weft_job_reads(self->job, below, unit)) return 0;
    return 1;
}

static void backward(fsdp *self, int32_t s, int32_t a) {
    const weft_segment_view *segment = weft_job_segment(self->job, s);
    int32_t i;
    gather_for(self, s);
    weft_emit_backward(&self->e, s, micro_batch_of(self, a));
    for (i = 0; i < segment->n_units; i++) {
        const int32_t unit = segment->units[i];
        if (!is_done_at(self, unit, s)) continue;
        release(self, unit);
        if (weft_job_trains(self->job, unit) && self->shard != FSDP_OPTIMIZER) reduce(self, unit, a);
    }
}

/* Releases units that forward kept and no BACKWARD reads: frozen units below the lowest trained one. */
static void release_all(fsdp *self) {
    int32_t u;
    for (u = 0; u < self->job->n_units; u++) release(self, u);
}

/* shard = optimizer: reduces all units in the order in which backward has completed them. */
static void reduce_all(fsdp *self, int32_t a) {
    int32_t s, i;
    for (s = self->job->n_segments - 1; s >= 0 && weft_job_segment(self->job, s)->backward; s--) {
        const weft_segment_view *segment = weft_job_segment(self->job, s);
        for (i = 0; i < segment->n_units; i++)
            if (weft_job_trains(self->job, segment->units[i]) && is_done_at(self, segment->units[i], s))
                reduce(self, segment->units[i], a);
    }
}

/* ---- the step ---- */

static void refresh(fsdp *self) {
    int32_t u, under_way = -1;
    for (u = 0; u < self->job->n_units; u++) {
        if (!weft_job_trains(self->job, u) || is_cut(self, u)) continue;
        weft_emit_wait(&self->e, under_way);
        under_way = weft_emit_refresh(&self->e, u, REFRESH_QUEUE);
    }
    weft_emit_wait(&self->e, under_way);
}

static void train(fsdp *self) {
    int32_t a, s;
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_COUNT);
    for (a = 0; a < self->job->micro_batches; a++) {
        forward(self, micro_batch_of(self, a));
        for (s = self->job->n_segments - 1; s >= 0 && weft_job_segment(self->job, s)->backward; s--)
            backward(self, s, a);
        release_all(self);
        if (self->shard == FSDP_OPTIMIZER) reduce_all(self, a);
    }
    advance(self);
    advance(self);
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_NORM);
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_STEP);
    refresh(self);
}

weft_status fsdp_compile(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                         const weft_emitter *emitter, weft_error *err) {
    fsdp self;
    memset(&self, 0, sizeof self);
    self.e = weft_emit_begin(emitter);
    self.job = job;
    self.keys = (const fsdp_config *)config;
    self.shard = fsdp_shard_of(self.keys);
    self.rank = rank;
    self.group = fsdp_group_of(self.keys, job);
    self.last = self.keys->reduce_at == REDUCE_AT_LAST;
    self.hops = self.last && self.group < job->world && job->reduce != WEFT_REDUCE_ORDERED;
    self.reduce = self.gather = self.finishing = -1;
    self.live = (int32_t *)host->alloc(host, ((size_t)job->n_units + 1) * sizeof *self.live, 8);
    if (self.live == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %d units", (int)job->n_units);
    memset(self.live, 0, ((size_t)job->n_units + 1) * sizeof *self.live);
    if (job->mode == WEFT_MODE_TRAIN) train(&self);
    else forward(&self, micro_batch_of(&self, 0));
    host->release(host, self.live);
    return weft_emit_end(&self.e, err);
}
