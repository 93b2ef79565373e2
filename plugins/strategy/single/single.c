/* single: one rank stores and computes everything.
 *
 * A training step runs per micro-batch all segments forward, then backward down to the lowest segment with a BACKWARD.
 * Each unit's micro-batch gradient is added to the sum after its last write. NORM and STEP follow. */
#include <weft/emit.h>

WEFT_NO_KEYS(single_config)

static weft_status single_replicas(const weft_host *host, const void *config, const weft_strategy_job *job,
                                   int32_t *out, weft_error *err) {
    (void)host;
    (void)config;
    if (job->world != 1)
        return weft_error_set(err, WEFT_E_USER,
                              "strategy single runs on one rank, and this job has %d: start one process, or choose a "
                              "strategy that spreads a model over ranks",
                              (int)job->world);
    *out = 1;
    return WEFT_OK;
}

/* Owned rather than replicated: no second copy requires synchronization. */
static weft_status single_place(const weft_host *host, const void *config, const weft_strategy_job *job,
                                weft_placement *units, int32_t *owners, weft_error *err) {
    int32_t u;
    (void)host;
    (void)config;
    (void)owners;
    (void)err;
    for (u = 0; u < job->n_units; u++) {
        weft_placement *placement = weft_placement_at(job, units, u);
        placement->parameters = WEFT_OWNED;
        placement->gradients = WEFT_OWNED;
        placement->optimizer = WEFT_OWNED;
        placement->owner = 0;
    }
    return WEFT_OK;
}

static void backward(weft_emit *e, const weft_strategy_job *job, int32_t s, int32_t micro_batch) {
    const weft_segment_view *segment = weft_job_segment(job, s);
    int32_t i;
    weft_emit_backward(e, s, micro_batch);
    for (i = 0; i < segment->n_units; i++) {
        const int32_t unit = segment->units[i];
        if (weft_job_trains(job, unit) && weft_job_completes(job, unit) == s)
            (void)weft_emit_reduce(e, unit, micro_batch, WEFT_SCOPE_RANK, 0);
    }
}

static void forward(weft_emit *e, const weft_strategy_job *job, int32_t micro_batch) {
    int32_t s;
    for (s = 0; s < job->n_segments; s++) weft_emit_forward(e, s, micro_batch);
}

static void train(weft_emit *e, const weft_strategy_job *job) {
    int32_t micro_batch, s;
    weft_emit_plain(e, WEFT_INSTRUCTION_COUNT);
    for (micro_batch = 0; micro_batch < job->micro_batches; micro_batch++) {
        forward(e, job, micro_batch);
        for (s = job->n_segments - 1; s >= 0 && weft_job_segment(job, s)->backward; s--)
            backward(e, job, s, micro_batch);
    }
    weft_emit_plain(e, WEFT_INSTRUCTION_NORM);
    weft_emit_plain(e, WEFT_INSTRUCTION_STEP);
}

static weft_status single_compile(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                                  const weft_emitter *emitter, weft_error *err) {
    weft_emit e = weft_emit_begin(emitter);
    (void)host;
    (void)config;
    (void)rank;
    if (job->mode == WEFT_MODE_TRAIN) train(&e, job);
    else forward(&e, job, 0);
    return weft_emit_end(&e, err);
}

static const weft_strategy_plugin single_table = {(uint32_t)sizeof(weft_strategy_plugin),
                                                  WEFT_CAPABILITY_REDUCE | WEFT_CAPABILITY_REDUCE_DTYPE,
                                                  single_replicas, single_place, single_compile};

WEFT_PLUGIN(strategy, 1, "single", "0.1.0", "One rank with the complete model.", single_config, NULL, single_table)
