/* program.c: the instructions of one rank.
 *
 * With any schedule a rank runs its segments of a micro-batch in the model's order forward, then in reverse. A carry or
 * gradient from another rank is received directly before the segment that requires it. It is sent directly after the
 * segment that computes it, concurrently with later instructions. A SEND is waited for before the next one of its kind,
 * or when its slot is required. Backwards run in micro-batch order on every rank. */
#include "mp.h"

enum { CARRY_QUEUE = 1, PART_QUEUE = 2, GRADIENT_QUEUE = 3 };

typedef struct pipeline {
    weft_emit e;
    const weft_strategy_job *job;
    int32_t rank, parts; /* mp_parts */
    int32_t *sends;      /* [2 * n_segments + n_units][micro-batches] instructions without a WAIT so far, or -1 */
} pipeline;

static int32_t micro_batches_of(const weft_strategy_job *job) {
    return job->mode == WEFT_MODE_TRAIN ? job->micro_batches : 1;
}

/* Outside the model the neighbor is this rank itself. */
static int32_t owner_of(const pipeline *self, int32_t s) {
    return s < 0 || s >= self->job->n_segments ? self->rank : weft_job_segment(self->job, s)->owner;
}

/* ---- sends ---- */

static int32_t *sends_of(const pipeline *self, int32_t what, int32_t of) {
    const int32_t n = self->job->n_segments;
    const int32_t row = what == WEFT_PAYLOAD_CARRY ? of : what == WEFT_PAYLOAD_CARRY_GRADIENT ? n + of : 2 * n + of;
    return self->sends + (size_t)row * (size_t)micro_batches_of(self->job);
}

static void settle(pipeline *self, int32_t *send) {
    weft_emit_wait(&self->e, *send);
    *send = -1;
}

static void send(pipeline *self, int32_t what, int32_t of, int32_t micro_batch, int32_t peer, int32_t queue) {
    sends_of(self, what, of)[micro_batch] =
        weft_emit_transfer(&self->e, WEFT_INSTRUCTION_SEND, what, of, micro_batch, peer, queue);
}

/* Waits until fewer than `most` sends are in flight. */
static void make_room(pipeline *self, int32_t what, int32_t of, int32_t micro_batch, int32_t most) {
    if (micro_batch >= most) settle(self, &sends_of(self, what, of)[micro_batch - most]);
}

static void settle_all(pipeline *self) {
    const int32_t n = (2 * self->job->n_segments + self->job->n_units) * micro_batches_of(self->job);
    int32_t i;
    for (i = 0; i < n; i++) settle(self, &self->sends[i]);
}

static void receive(pipeline *self, int32_t what, int32_t of, int32_t micro_batch, int32_t peer) {
    (void)weft_emit_transfer(&self->e, WEFT_INSTRUCTION_RECV, what, of, micro_batch, peer, 0);
}

/* ---- tied storage ---- */

/* Returns the rank other than the owner that reads the unit; -1 without one. */
static int32_t other_reader(const weft_strategy_job *job, int32_t unit) {
    const int32_t owner = weft_job_placement(job, unit)->owner;
    int32_t s;
    for (s = 0; s < job->n_segments; s++)
        if (weft_job_reads(job, s, unit) && weft_job_segment(job, s)->owner != owner)
            return weft_job_segment(job, s)->owner;
    return -1;
}

/* True if a segment of this rank in [from, to) has a BACKWARD that reads the unit. */
static int reads_between(const pipeline *self, int32_t unit, int32_t from, int32_t to) {
    int32_t s;
    for (s = from; s < to; s++)
        if (owner_of(self, s) == self->rank && weft_job_segment(self->job, s)->backward &&
            weft_job_reads(self->job, s, unit))
            return 1;
    return 0;
}

/* Runs before this rank's first BACKWARD that reads a unit with a second reader. The owner receives the other rank's
 * part, to which it adds. The other rank waits until fewer than `parts` of its parts are in flight. */
static void prepare_units(pipeline *self, int32_t s, int32_t micro_batch) {
    const weft_segment_view *segment = weft_job_segment(self->job, s);
    int32_t i;
    for (i = 0; i < segment->n_units; i++) {
        const int32_t unit = segment->units[i], other = other_reader(self->job, unit);
        if (!weft_job_trains(self->job, unit) || other < 0 || reads_between(self, unit, s + 1, self->job->n_segments))
            continue;
        if (other == self->rank) make_room(self, WEFT_PAYLOAD_MICRO_BATCH_GRADIENT, unit, micro_batch, self->parts);
        else receive(self, WEFT_PAYLOAD_MICRO_BATCH_GRADIENT, unit, micro_batch, other);
    }
}

/* Adds a complete micro-batch gradient to the sum, or sends it to the owner. */
static void finish_units(pipeline *self, int32_t s, int32_t micro_batch) {
    const weft_segment_view *segment = weft_job_segment(self->job, s);
    int32_t i;
    for (i = 0; i < segment->n_units; i++) {
        const int32_t unit = segment->units[i], owner = weft_job_placement(self->job, unit)->owner;
        if (!weft_job_trains(self->job, unit) || reads_between(self, unit, 0, s)) continue;
        if (owner == self->rank) (void)weft_emit_reduce(&self->e, unit, micro_batch, WEFT_SCOPE_RANK, 0);
        else send(self, WEFT_PAYLOAD_MICRO_BATCH_GRADIENT, unit, micro_batch, owner, PART_QUEUE);
    }
}

static void refresh_copies(pipeline *self) {
    int32_t u;
    for (u = 0; u < self->job->n_units; u++) {
        const int32_t other = other_reader(self->job, u), owner = weft_job_placement(self->job, u)->owner;
        if (!weft_job_trains(self->job, u) || other < 0 || (owner != self->rank && other != self->rank)) continue;
        (void)weft_emit_refresh(&self->e, u, 0);
    }
}

/* ---- a micro-batch ---- */

static void forward(pipeline *self, int32_t micro_batch) {
    int32_t s;
    for (s = 0; s < self->job->n_segments; s++) {
        const int32_t below = owner_of(self, s - 1), above = owner_of(self, s + 1);
        if (owner_of(self, s) != self->rank) continue;
        if (below != self->rank) receive(self, WEFT_PAYLOAD_CARRY, s - 1, micro_batch, below);
        weft_emit_forward(&self->e, s, micro_batch);
        if (above == self->rank) continue;
        make_room(self, WEFT_PAYLOAD_CARRY, s, micro_batch, 1);
        send(self, WEFT_PAYLOAD_CARRY, s, micro_batch, above, CARRY_QUEUE);
    }
}

static void backward(pipeline *self, int32_t micro_batch) {
    int32_t s;
    for (s = self->job->n_segments - 1; s >= 0 && weft_job_segment(self->job, s)->backward; s--) {
        const int32_t below = owner_of(self, s - 1), above = owner_of(self, s + 1);
        if (owner_of(self, s) != self->rank) continue;
        if (above != self->rank) receive(self, WEFT_PAYLOAD_CARRY_GRADIENT, s, micro_batch, above);
        prepare_units(self, s, micro_batch);
        weft_emit_backward(&self->e, s, micro_batch);
        if (below != self->rank && weft_job_segment(self->job, s - 1)->backward) {
            make_room(self, WEFT_PAYLOAD_CARRY_GRADIENT, s - 1, micro_batch, 1);
            send(self, WEFT_PAYLOAD_CARRY_GRADIENT, s - 1, micro_batch, below, GRADIENT_QUEUE);
        }
        finish_units(self, s, micro_batch);
    }
}

/* ---- schedules ---- */

/* Returns the number of stages above this rank's, if each rank has one stage. */
static int32_t stages_above(const pipeline *self) {
    int32_t above = 0, s = self->job->n_segments - 1;
    for (; owner_of(self, s) != self->rank; s--) above += owner_of(self, s) != owner_of(self, s - 1);
    return above;
}

/* Runs `ahead` forwards before the first backward, then alternates (1F1B). 0 is naive, all micro-batches are gpipe. */
static void run_micro_batches(pipeline *self, int32_t ahead) {
    int32_t m;
    for (m = 0; m < self->job->micro_batches + ahead; m++) {
        if (m < self->job->micro_batches) forward(self, m);
        if (m >= ahead) backward(self, m - ahead);
    }
}

static void train(pipeline *self, const mp_config *keys) {
    int32_t ahead = 0;
    if (keys->schedule == MP_GPIPE) ahead = self->job->micro_batches - 1;
    if (keys->schedule == MP_1F1B) ahead = stages_above(self);
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_COUNT);
    run_micro_batches(self, ahead);
    settle_all(self);
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_NORM);
    weft_emit_plain(&self->e, WEFT_INSTRUCTION_STEP);
    refresh_copies(self);
}

weft_status mp_compile(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                       const weft_emitter *emitter, weft_error *err) {
    const size_t sends = (2 * (size_t)job->n_segments + (size_t)job->n_units) * (size_t)micro_batches_of(job);
    pipeline self;
    int32_t stages = 1, s;
    memset(&self, 0, sizeof self);
    self.e = weft_emit_begin(emitter);
    self.job = job;
    self.rank = rank;
    for (s = 1; s < job->n_segments; s++) stages += owner_of(&self, s) != owner_of(&self, s - 1);
    self.parts = mp_parts((const mp_config *)config, stages);
    self.sends = (int32_t *)host->alloc(host, sends * sizeof *self.sends, 8);
    if (self.sends == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for %zu sends", sends);
    memset(self.sends, 0xFF, sends * sizeof *self.sends);
    if (job->mode == WEFT_MODE_TRAIN) train(&self, (const mp_config *)config);
    else forward(&self, 0);
    settle_all(&self);
    host->release(host, self.sends);
    return weft_emit_end(&self.e, err);
}
