/* host/run/fetch.c: what a rank keeps as regions, and which rank gives which part of one to the others. */
#include "run/fetch.h"

/* The rank that gives element e of a group; *end: up to which element it does. What all ranks have is dealt out by
 * pieces, as if it were cut. */
static int32_t giver_of(const weft_engine *engine, int32_t what, const weft_group *group, int64_t e, int64_t *end) {
    const weft_job_spec *job =
        &(engine->plan.train.job != NULL ? &engine->plan.train : &engine->plan.evaluate)->job->spec;
    const weft_placement *p = &job->view.placements[group->unit];
    const int32_t holding = what == WEFT_HOLD_PARAMETERS ? p->parameters : p->optimizer;
    const weft_cut cut = weft_cut_of(job, group->unit);
    const int64_t piece = weft_hold_piece(engine->plan.layout, group, cut.replicas);
    *end = group->numel;
    if (holding == WEFT_OWNED) return p->owner;
    if ((e / piece + 1) * piece < *end) *end = (e / piece + 1) * piece;
    return weft_cut_rank(&cut, (int32_t)(e / piece));
}

static int32_t find_writer(void *context, int32_t parameter, int64_t first, int64_t *end) {
    const weft_fetcher *self = context;
    const weft_engine *engine = self->engine;
    const weft_parameter *p = &engine->plan.declared->parameters[parameter];
    const int32_t rank = giver_of(engine, self->what, &engine->plan.layout->groups[p->group], p->offset + first, end);
    *end -= p->offset;
    if (*end > p->numel) *end = p->numel;
    return rank;
}

static int32_t state_dtype(const weft_engine *engine, const weft_fetcher *f) {
    return engine->plan.states[f->what - WEFT_HOLD_STATES].dtype;
}

static weft_region region_of(const weft_engine *engine, int index) {
    const weft_fetcher *f = &engine->fetchers[index];
    const weft_region region = {.declared = engine->plan.declared,
                                .layout = engine->plan.layout,
                                .kernels = engine->kernels,
                                .device = engine->device,
                                .ref = f->ref,
                                .dtype = f->what == WEFT_HOLD_PARAMETERS ? 0 : state_dtype(engine, f),
                                .hold = engine->plan.holds[f->what],
                                .apart = engine->plan.apart[f->what],
                                .writer = find_writer,
                                .context = (void *)(uintptr_t)f,
                                .peers = &engine->peers};
    return region;
}

weft_region weft_engine_parameters(const weft_engine *engine) {
    return region_of(engine, 0);
}

weft_region weft_engine_state(const weft_engine *engine, int64_t state) {
    return region_of(engine, 1 + (int)state);
}
