/* steady: a strategy outside the project for test_keys.py, with everything on one rank and two keys of its own. It
 * offers only `reduce` of the host's keys, not `reduce_dtype` or `prefetch`. */
#include <weft/emit.h>

#define STEADY_KEYS(K)                                                                                                 \
    K(ENUM, pace, "slow", "slow,slower", "", WEFT_SAME, "How it goes; it goes as it goes.")                            \
    K(PATH, map, "none", "none", "", WEFT_SAME, "A file that it does not read.")
WEFT_KEYS(steady_config, STEADY_KEYS)

static weft_status steady_replicas(const weft_host *host, const void *config, const weft_strategy_job *job,
                                   int32_t *out, weft_error *err) {
    (void)host;
    (void)config;
    if (job->world != 1) return weft_error_set(err, WEFT_E_USER, "strategy steady runs on one rank");
    *out = 1;
    return WEFT_OK;
}

static weft_status steady_place(const weft_host *host, const void *config, const weft_strategy_job *job,
                                weft_placement *units, int32_t *owners, weft_error *err) {
    (void)host;
    (void)config;
    (void)owners;
    (void)err;
    for (int32_t u = 0; u < job->n_units; u++) {
        units[u].parameters = units[u].gradients = units[u].optimizer = WEFT_OWNED;
        units[u].owner = 0;
    }
    return WEFT_OK;
}

static void backward(weft_emit *e, const weft_strategy_job *job, int32_t s, int32_t micro_batch) {
    const weft_segment_view *segment = weft_job_segment(job, s);
    weft_emit_backward(e, s, micro_batch);
    for (int32_t i = 0; i < segment->n_units; i++) {
        const int32_t unit = segment->units[i];
        if (weft_job_trains(job, unit) && weft_job_completes(job, unit) == s)
            (void)weft_emit_reduce(e, unit, micro_batch, WEFT_SCOPE_RANK, 0);
    }
}

static weft_status steady_compile(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                                  const weft_emitter *emitter, weft_error *err) {
    weft_emit e = weft_emit_begin(emitter);
    const int32_t trains = job->mode == WEFT_MODE_TRAIN;
    (void)host;
    (void)config;
    (void)rank;
    if (trains) weft_emit_plain(&e, WEFT_INSTRUCTION_COUNT);
    for (int32_t micro_batch = 0; micro_batch < job->micro_batches; micro_batch++) {
        for (int32_t s = 0; s < job->n_segments; s++) weft_emit_forward(&e, s, micro_batch);
        for (int32_t s = job->n_segments - 1; trains && s >= 0 && weft_job_segment(job, s)->backward; s--)
            backward(&e, job, s, micro_batch);
    }
    if (trains) weft_emit_plain(&e, WEFT_INSTRUCTION_NORM);
    if (trains) weft_emit_plain(&e, WEFT_INSTRUCTION_STEP);
    return weft_emit_end(&e, err);
}

static const weft_strategy_plugin steady_table = {(uint32_t)sizeof(weft_strategy_plugin), WEFT_CAPABILITY_REDUCE,
                                                  steady_replicas, steady_place, steady_compile};

WEFT_PLUGIN(strategy, 1, "steady", "1.0", "Everything on one rank, from elsewhere.", steady_config, NULL, steady_table)
