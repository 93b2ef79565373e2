/* host/program/placing.c: see placing.h. */
#include "program/placing.h"

#include "program/split.h"
#include "program/sums.h"
#include "program/job.h"
#include "program/capabilities.h"

#include <stdlib.h>

/* What a job is made for. */
typedef struct demand {
    int32_t micro_batches; /* of a step, all replicas together */
    int64_t step_work;     /* scratch of NORM */
} demand;

/* The strategy's part of the job that only the host knows. */
static void fill_in_world(const weft_plan *plan, weft_job *job) {
    const weft_loaded *strategy = plan->run->parts[WEFT_PART_STRATEGY].loaded;
    const weft_strategy_settings *keys = &plan->run->settings.strategy;
    weft_strategy_job *view = &job->spec.view;
    view->world = plan->world;
    view->nodes = plan->world > 1 ? plan->nodes : 1;
    view->ranks_per_node = view->world / (view->nodes > 0 && view->world % view->nodes == 0 ? view->nodes : 1);
    job->spec.in_order = plan->in_order;
    job->spec.most_seconds = plan->run->settings.plugins.compile_seconds;
    job->spec.most_instructions = plan->run->settings.plugins.compile_events;
    view->reduce = (int32_t)keys->reduce;
    view->reduce_dtype = weft_reduce_dtype(keys);
    if ((weft_capabilities_of(strategy) & WEFT_CAPABILITY_PREFETCH) != 0) job->spec.prefetch = (int32_t)keys->prefetch;
}

/* "1, 2, 3, 4, 6 or 12": the numbers that divide n, of many the first and n itself. */
static void list_divisors(char text[160], int32_t n) {
    enum { SHOWN = 12 };
    int32_t shown = 0;
    size_t at = 0;
    text[0] = '\0';
    for (int32_t d = 1; d < n && shown < SHOWN; d++)
        if (n % d == 0) at += (size_t)snprintf(text + at, 160 - at, "%s%d", shown++ == 0 ? "" : ", ", (int)d);
    (void)snprintf(text + at, 160 - at, "%s%d", shown == 0 ? "" : shown == SHOWN ? " ... or " : " or ", (int)n);
}

/* The largest micro-batch up to this one in which the replicas share the rows evenly; 0: there is none. */
static int64_t find_micro_batch(const weft_train_settings *train, int32_t replicas) {
    if (train->global_batch % replicas != 0) return 0;
    for (int64_t rows = train->micro_batch; rows > 0; rows--)
        if (train->global_batch / replicas % rows == 0) return rows;
    return 0;
}

/* A of R replicas: every replica takes as many micro-batches as the next. */
static weft_status share_micro_batches(const weft_plan *plan, weft_job *job, int32_t micro_batches, weft_error *err) {
    weft_strategy_job *view = &job->spec.view;
    const weft_train_settings *train = &plan->run->settings.train;
    const int64_t micro = find_micro_batch(train, view->replicas);
    char fitting[160], smaller[120] = "";
    view->micro_batches = view->mode == WEFT_MODE_TRAIN ? micro_batches / view->replicas : 1;
    if (view->mode != WEFT_MODE_TRAIN || micro_batches % view->replicas == 0) return WEFT_OK;
    list_divisors(fitting, micro_batches);
    if (micro > 0) (void)snprintf(smaller, sizeof smaller, ", or set micro_batch = %lld", (long long)micro);
    return weft_error_set(
        err, WEFT_E_USER,
        "[train] global_batch = %lld in micro-batches of %lld %s %d %s, which %d replicas cannot "
        "share evenly: start %s rank%s%s, which keeps the batch; a global_batch that is a multiple of "
        "%lld is another batch, and changes what is learned",
        (long long)train->global_batch, (long long)train->micro_batch, micro_batches == 1 ? "is" : "are",
        (int)micro_batches, micro_batches == 1 ? "micro-batch" : "micro-batches", (int)view->replicas, fitting,
        micro_batches == 1 ? "" : "s", smaller, (long long)train->micro_batch * view->replicas);
}

static weft_status make_job(weft_plan *plan, weft_mode_plan *mode_plan, const demand *of, weft_error *err) {
    const bool training = mode_plan->graphs->mode == WEFT_MODE_TRAIN;
    weft_status status = WEFT_OK;
    weft_job_destroy(mode_plan->job);
    mode_plan->job = NULL;
    status = weft_job_create(&mode_plan->job, mode_plan->graphs, plan->declared, plan->layout, of->micro_batches,
                             plan->states, plan->n_states,
                             training && plan->run->settings.train.activation_checkpointing, err);
    if (status == WEFT_OK && training) mode_plan->job->spec.step_work = of->step_work;
    return status;
}

/* What lies where is decided once: in a run that trains, by the training job. */
static weft_status ask_places(weft_plan *plan, weft_mode_plan *mode_plan, weft_error *err) {
    const weft_run *run = plan->run;
    const weft_part *part = &run->parts[WEFT_PART_STRATEGY];
    const weft_job *first = plan->train.job;
    if (first == NULL || first == mode_plan->job)
        return weft_job_place(&mode_plan->job->spec, run->host, weft_loaded_table(part->loaded, strategy), part->config,
                              err);
    for (int32_t u = 0; u < first->spec.view.n_units; u++) mode_plan->job->placements[u] = first->placements[u];
    for (int32_t s = 0; s < first->spec.view.n_segments; s++)
        mode_plan->job->segment_views[s].owner = first->segment_views[s].owner;
    return WEFT_OK;
}

static weft_status ask_strategy(weft_plan *plan, weft_mode_plan *mode_plan, const demand *of, weft_error *err) {
    const weft_run *run = plan->run;
    const weft_part *part = &run->parts[WEFT_PART_STRATEGY];
    weft_status status = make_job(plan, mode_plan, of, err);
    if (status != WEFT_OK) return status;
    fill_in_world(plan, mode_plan->job);
    status = weft_job_replicas(&mode_plan->job->spec, run->host, weft_loaded_table(part->loaded, strategy),
                               part->config, err);
    if (status == WEFT_OK) status = share_micro_batches(plan, mode_plan->job, of->micro_batches, err);
    if (status == WEFT_OK) status = ask_places(plan, mode_plan, err);
    return weft_run_located(run, WEFT_PART_STRATEGY, status, err);
}

/* Where segments of several ranks read a unit, it is cut, and the strategy is asked again. */
weft_status weft_place_job(weft_plan *plan, weft_mode_plan *mode_plan, int32_t micro_batches, int64_t step_work,
                           weft_error *err) {
    const demand of = {micro_batches, step_work};
    bool split = false;
    int32_t *owners = NULL;
    weft_job_spec *spec = NULL;
    weft_status status = ask_strategy(plan, mode_plan, &of, err);
    if (status == WEFT_OK) status = weft_split_owners(&owners, mode_plan->job, err);
    if (status == WEFT_OK) status = weft_split_units(&split, plan, mode_plan, err);
    if (status == WEFT_OK && split) status = ask_strategy(plan, mode_plan, &of, err);
    if (status == WEFT_OK && split) status = weft_split_check(mode_plan->job, owners, err);
    free(owners);
    if (status != WEFT_OK) return status;
    spec = &mode_plan->job->spec;
    weft_sums_size_units(plan, mode_plan->job);
    status = weft_job_spec_check(spec, err);
    return status == WEFT_OK ? weft_sums_hold(plan, spec, err) : status;
}
