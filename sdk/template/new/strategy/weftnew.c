/* weftnew-id: a strategy. Every rank holds the whole model, takes its own leaves, and gives each gradient to all.
 *
 * A strategy is a pure compiler: the host asks how many replicas there are, where each unit lies, and which events a
 * rank runs for a step; then once more for evaluation and for generation, where a rank runs one leaf forward. It is
 * asked by the main thread, before anything runs, for every rank. What it answers is judged before it is used: `weft
 * plan --print-program` prints it, with a mark where it does not hold. */
#define WEFT_MIN_SDK WEFT_SDK(1, 0) /* the oldest host it works with; newer things of the headers are then hidden */
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

/* Who keeps what of each unit: all of everything, on every rank. */
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

/* A unit's gradient of a leaf is complete after the lowest segment that reads it. It joins the sum there, and after
 * the rank's last leaf every rank gets the finished sum. In queue 0 an event has ended when the next one starts; in
 * queues 1 to 3 it runs beside what follows, up to its WAIT. */
static void complete(weft_emit *e, int32_t unit, int32_t leaf, int is_last) {
    (void)weft_emit_reduce(e, unit, leaf, WEFT_SCOPE_ALL, 0);
    if (is_last) (void)weft_emit_gather(e, unit, WEFT_WHAT_SUM, 0);
}

static void backward(weft_emit *e, const weft_strategy_job *job, int32_t leaf, int is_last) {
    int32_t s, i;
    for (s = job->n_segments - 1; s >= 0 && weft_job_segment(job, s)->backward; s--) {
        const weft_segment_view *segment = weft_job_segment(job, s);
        weft_emit_backward(e, s, leaf);
        for (i = 0; i < segment->n_units; i++)
            if (weft_job_trains(job, segment->units[i]) && weft_job_completes(job, segment->units[i]) == s)
                complete(e, segment->units[i], leaf, is_last);
    }
}

static void forward(weft_emit *e, const weft_strategy_job *job, int32_t leaf) {
    int32_t s;
    for (s = 0; s < job->n_segments; s++) weft_emit_forward(e, s, leaf);
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
    weft_emit_plain(&e, WEFT_EVENT_COUNT);
    for (a = 0; a < job->leaves; a++) {
        forward(&e, job, weft_job_leaf(job, rank, a));
        backward(&e, job, weft_job_leaf(job, rank, a), a == job->leaves - 1);
    }
    weft_emit_plain(&e, WEFT_EVENT_NORM);
    weft_emit_plain(&e, WEFT_EVENT_STEP);
    return weft_emit_end(&e, err);
}

static const weft_strategy_plugin weftnew_table = {(uint32_t)sizeof(weft_strategy_plugin), WEFT_OFFERS_REDUCE,
                                                   weftnew_replicas, weftnew_place, weftnew_compile};

WEFT_PLUGIN(strategy, 1, "weftnew-id", "0.1.0", "Every rank holds the whole model and takes its own leaves.",
            weftnew_config, NULL, weftnew_table)
