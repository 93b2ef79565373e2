/* ddp: every rank has the complete model and runs its own micro-batches (Li et al., arXiv 2006.15704).
 *
 * The reduction of a unit's gradient starts when backward has completed it, and runs concurrently with backward of the
 * next unit. The gather of its final sum runs concurrently with the unit after that. With reduce_at = last a replica
 * first sums its own micro-batches, and reductions run only during its last backward. Then all ranks apply the same
 * update. */
#include <weft/emit.h>

#define DDP_KEYS(K)                                                                                                    \
    K(ENUM, reduce_at, "each", "each,last", "", WEFT_SAME,                                                             \
      "When gradients are reduced: at each micro-step, or once per optimizer step.")
WEFT_KEYS(ddp_config, DDP_KEYS)

enum { REDUCE_AT_EACH, REDUCE_AT_LAST };

#define QUEUE 1

typedef struct ddp {
    weft_emit e;
    const weft_strategy_job *job;
    int32_t rank, last;     /* reduce_at = last */
    int32_t reduce, gather; /* instructions in flight; -1: idle */
    int32_t finishing;      /* unit of the final sum that `reduce` computes; -1: not a final sum */
} ddp;

static weft_status ddp_replicas(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t *out,
                                weft_error *err) {
    (void)host;
    (void)config;
    (void)err;
    *out = job->world;
    return WEFT_OK;
}

static weft_status ddp_place(const weft_host *host, const void *config, const weft_strategy_job *job,
                             weft_placement *units, int32_t *owners, weft_error *err) {
    int32_t u;
    (void)host;
    (void)config;
    (void)owners;
    (void)err;
    for (u = 0; u < job->n_units; u++) {
        weft_placement *placement = weft_placement_at(job, units, u);
        placement->parameters = placement->gradients = placement->optimizer = WEFT_REPLICATED;
    }
    return WEFT_OK;
}

static int32_t micro_batch_of(const ddp *self, int32_t a) {
    return self->last ? weft_job_micro_batch_last(self->job, self->rank, a)
                      : weft_job_micro_batch(self->job, self->rank, a);
}

/* Waits for the instructions in flight, and starts the gather of a final sum. */
static void advance(ddp *self) {
    weft_emit_wait(&self->e, self->gather);
    weft_emit_wait(&self->e, self->reduce);
    self->gather = self->finishing < 0 ? -1 : weft_emit_gather(&self->e, self->finishing, WEFT_PAYLOAD_SUM, QUEUE);
    self->reduce = self->finishing = -1;
}

/* Adds a complete micro-batch gradient to the sum; the last one completes it. */
static void reduce(ddp *self, int32_t unit, int32_t a) {
    const int32_t finishes = a == self->job->micro_batches - 1;
    if (self->last) (void)weft_emit_reduce(&self->e, unit, micro_batch_of(self, a), WEFT_SCOPE_RANK, 0);
    if (self->last && !finishes) return;
    advance(self);
    self->reduce = weft_emit_reduce(&self->e, unit, self->last ? -1 : micro_batch_of(self, a), WEFT_SCOPE_ALL, QUEUE);
    self->finishing = finishes ? unit : -1;
}

static void backward(ddp *self, int32_t s, int32_t a) {
    const weft_segment_view *segment = weft_job_segment(self->job, s);
    int32_t i;
    weft_emit_backward(&self->e, s, micro_batch_of(self, a));
    for (i = 0; i < segment->n_units; i++)
        if (weft_job_trains(self->job, segment->units[i]) && weft_job_completes(self->job, segment->units[i]) == s)
            reduce(self, segment->units[i], a);
}

static void forward(ddp *self, int32_t micro_batch) {
    int32_t s;
    for (s = 0; s < self->job->n_segments; s++) weft_emit_forward(&self->e, s, micro_batch);
}

static void train(ddp *self) {
    int32_t a, s;
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_COUNT);
    for (a = 0; a < self->job->micro_batches; a++) {
        forward(self, micro_batch_of(self, a));
        for (s = self->job->n_segments - 1; s >= 0 && weft_job_segment(self->job, s)->backward; s--)
            backward(self, s, a);
    }
    advance(self);
    advance(self);
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_NORM);
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_STEP);
}

static weft_status ddp_compile(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                               const weft_emitter *emitter, weft_error *err) {
    const ddp_config *keys = (const ddp_config *)config;
    ddp self;
    (void)host;
    self.e = weft_emit_begin(emitter);
    self.job = job;
    self.rank = rank;
    self.last = keys->reduce_at == REDUCE_AT_LAST;
    self.reduce = self.gather = self.finishing = -1;
    if (job->mode == WEFT_MODE_TRAIN) train(&self);
    else forward(&self, rank);
    return weft_emit_end(&self.e, err);
}

static const weft_strategy_plugin ddp_table = {(uint32_t)sizeof(weft_strategy_plugin),
                                               WEFT_CAPABILITY_REDUCE | WEFT_CAPABILITY_REDUCE_DTYPE, ddp_replicas,
                                               ddp_place, ddp_compile};

WEFT_PLUGIN(strategy, 1, "ddp", "0.1.0",
            "Data parallelism: each rank has the complete model and trains its own micro-batches.", ddp_config, NULL,
            ddp_table)
