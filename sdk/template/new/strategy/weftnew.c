/* weftnew-id: a strategy: every rank holds the full model, processes its own micro-batches, and all-reduces the
 * gradients.
 *
 * A strategy is a pure compiler. The host queries the number of replicas, the placement of each unit, and the step
 * program of a rank. It compiles again for evaluation and for generation, in which a rank runs one micro-batch forward.
 * The main thread makes all calls, for every rank, before the run starts. The host validates the program before it
 * runs: `weft plan --print-program` prints it and marks the instruction that is wrong. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0) /* the oldest supported host; newer declarations are hidden */
#include <weft/emit.h>

WEFT_NO_KEYS(weftnew_config)

static weft_status weftnew_replicas(const weft_host *host, const void *config, const weft_strategy_job *job,
                                    int32_t *out, weft_error *err) {
    (void)host;
    (void)config;
    (void)err;
    *out = job->world;
    return WEFT_OK;
}

/* Fills the placement of each unit: every rank holds all of it. */
static weft_status weftnew_place(const weft_host *host, const void *config, const weft_strategy_job *job,
                                 weft_placement *units, int32_t *owners, weft_error *err) {
    int32_t u;
    (void)host;
    (void)config;
    (void)owners; /* no segment has an owner: every rank runs all of them */
    (void)err;
    for (u = 0; u < job->n_units; u++) {
        weft_placement *placement = weft_placement_at(job, units, u);
        placement->parameters = placement->gradients = placement->optimizer = WEFT_REPLICATED;
    }
    return WEFT_OK;
}

/* The gradient of a unit for a micro-batch is complete after the lowest segment that reads the unit. It is added to the
 * sum there, and after the rank's last micro-batch every rank receives the finished sum. An instruction of queue 0 ends
 * before the next one starts; one of queues 1 to 3 runs concurrently with the following ones until its WAIT. */
static void complete(weft_emit *e, int32_t unit, int32_t micro_batch, int is_last) {
    (void)weft_emit_reduce(e, unit, micro_batch, WEFT_SCOPE_ALL, 0);
    if (is_last) (void)weft_emit_gather(e, unit, WEFT_PAYLOAD_SUM, 0);
}

static void backward(weft_emit *e, const weft_strategy_job *job, int32_t micro_batch, int is_last) {
    int32_t s, i;
    for (s = job->n_segments - 1; s >= 0 && weft_job_segment(job, s)->backward; s--) {
        const weft_segment_view *segment = weft_job_segment(job, s);
        weft_emit_backward(e, s, micro_batch);
        for (i = 0; i < segment->n_units; i++)
            if (weft_job_trains(job, segment->units[i]) && weft_job_completes(job, segment->units[i]) == s)
                complete(e, segment->units[i], micro_batch, is_last);
    }
}

static void forward(weft_emit *e, const weft_strategy_job *job, int32_t micro_batch) {
    int32_t s;
    for (s = 0; s < job->n_segments; s++) weft_emit_forward(e, s, micro_batch);
}

static weft_status weftnew_compile(const weft_host *host, const void *config, const weft_strategy_job *job,
                                   int32_t rank, const weft_emitter *emitter, weft_error *err) {
    weft_emit e = weft_emit_begin(emitter);
    int32_t a;
    (void)host;
    (void)config;
    if (job->mode != WEFT_MODE_TRAIN) {
        forward(&e, job, rank);
        return weft_emit_end(&e, err);
    }
    weft_emit_plain(&e, WEFT_INSTRUCTION_COUNT);
    for (a = 0; a < job->micro_batches; a++) {
        forward(&e, job, weft_job_micro_batch(job, rank, a));
        backward(&e, job, weft_job_micro_batch(job, rank, a), a == job->micro_batches - 1);
    }
    weft_emit_plain(&e, WEFT_INSTRUCTION_NORM);
    weft_emit_plain(&e, WEFT_INSTRUCTION_STEP);
    return weft_emit_end(&e, err);
}

static const weft_strategy_plugin weftnew_table = {(uint32_t)sizeof(weft_strategy_plugin), WEFT_CAPABILITY_REDUCE,
                                                   weftnew_replicas, weftnew_place, weftnew_compile};

WEFT_PLUGIN(strategy, 1, "weftnew-id", "0.1.0",
            "Data parallelism: each rank has the complete model and trains its own micro-batches.", weftnew_config,
            NULL, weftnew_table)
