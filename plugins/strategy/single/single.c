/* single: one rank holds everything and does everything.
 *
 * A training step, leaf by leaf: all segments forward, then backward down to the lowest one that has a BACKWARD, and
 * each unit's leaf gradient is added to the sum as soon as nobody writes to it any more. Then the norm, then the
 * update. */
#include <weft/strategy.h>

WEFT_NO_KEYS(single_config)

static const weft_segment_view *segment_at(const weft_strategy_job *job, int32_t s) {
    return (const weft_segment_view *)(const void *)((const char *)job->segments + (size_t)s * job->segment_stride);
}

static const weft_unit_view *unit_at(const weft_strategy_job *job, int32_t u) {
    return (const weft_unit_view *)(const void *)((const char *)job->units + (size_t)u * job->unit_stride);
}

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

/* Owned rather than replicated: there is no second copy that anything would have to keep equal. */
static weft_status single_place(const weft_host *host, const void *config, const weft_strategy_job *job,
                                weft_placement *units, weft_error *err) {
    int32_t u;
    (void)host;
    (void)config;
    (void)err;
    for (u = 0; u < job->n_units; u++) {
        units[u].parameters = WEFT_OWNED;
        units[u].gradients = WEFT_OWNED;
        units[u].optimizer = WEFT_OWNED;
        units[u].owner = 0;
    }
    return WEFT_OK;
}

static weft_status emit(const weft_emitter *to, int32_t kind, int32_t unit, int32_t segment, int32_t leaf,
                        weft_error *err) {
    const weft_event event = {(uint32_t)sizeof event, 0, kind, unit, segment, leaf, -1, 0, -1, 0};
    if (to->emit(to->program, &event) < 0)
        return weft_error_set(err, WEFT_E_MEMORY, "the host could not take another event of the step program");
    return WEFT_OK;
}

static int reads(const weft_segment_view *segment, int32_t unit) {
    int32_t i;
    for (i = 0; i < segment->n_units; i++)
        if (segment->units[i] == unit) return 1;
    return 0;
}

/* BACKWARDs run downwards, so a unit's leaf gradient is complete after the lowest one that reads the unit. */
static int completes(const weft_strategy_job *job, int32_t s, int32_t unit) {
    int32_t below;
    for (below = 0; below < s; below++)
        if (segment_at(job, below)->backward && reads(segment_at(job, below), unit)) return 0;
    return 1;
}

static weft_status backward(const weft_strategy_job *job, const weft_emitter *to, int32_t s, int32_t leaf,
                            weft_error *err) {
    const weft_segment_view *segment = segment_at(job, s);
    weft_status status = emit(to, WEFT_EVENT_BACKWARD, -1, s, leaf, err);
    int32_t i;
    for (i = 0; i < segment->n_units && status == WEFT_OK; i++) {
        const int32_t unit = segment->units[i];
        if (unit_at(job, unit)->gradient_bytes > 0 && completes(job, s, unit))
            status = emit(to, WEFT_EVENT_REDUCE, unit, -1, leaf, err);
    }
    return status;
}

static weft_status forward(const weft_strategy_job *job, const weft_emitter *to, int32_t leaf, weft_error *err) {
    weft_status status = WEFT_OK;
    int32_t s;
    for (s = 0; s < job->n_segments && status == WEFT_OK; s++) status = emit(to, WEFT_EVENT_FORWARD, -1, s, leaf, err);
    return status;
}

static weft_status train(const weft_strategy_job *job, const weft_emitter *to, weft_error *err) {
    weft_status status = emit(to, WEFT_EVENT_COUNT, -1, -1, -1, err);
    int32_t leaf, s;
    for (leaf = 0; leaf < job->leaves && status == WEFT_OK; leaf++) {
        status = forward(job, to, leaf, err);
        for (s = job->n_segments - 1; s >= 0 && segment_at(job, s)->backward && status == WEFT_OK; s--)
            status = backward(job, to, s, leaf, err);
    }
    if (status == WEFT_OK) status = emit(to, WEFT_EVENT_NORM, -1, -1, -1, err);
    if (status == WEFT_OK) status = emit(to, WEFT_EVENT_STEP, -1, -1, -1, err);
    return status;
}

static weft_status single_compile(const weft_host *host, const void *config, const weft_strategy_job *job, int32_t rank,
                                  const weft_emitter *emitter, weft_error *err) {
    (void)host;
    (void)config;
    (void)rank;
    if (job->mode == WEFT_MODE_TRAIN) return train(job, emitter, err);
    return forward(job, emitter, 0, err);
}

static const weft_strategy_plugin single_table = {(uint32_t)sizeof(weft_strategy_plugin), 0, single_replicas,
                                                  single_place, single_compile};

WEFT_PLUGIN(strategy, 0, "single", "0.1.0", "One rank holds everything and does everything.", single_config, NULL,
            single_table)
