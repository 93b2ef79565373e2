/* host/step/gather.c: see gather.h. */
#include "step/gather.h"

#include "plugin/enter.h"
#include "step/bind.h"
#include "step/travel.h"

/* A group's part of a unit's slot; places in bytes from the start of the slot. */
typedef struct part {
    const weft_group *group; /* NULL: the unit has none */
    int32_t index;
    int64_t shard;            /* elements that one rank keeps */
    int64_t image;            /* the group as it is computed with */
    int64_t rows, row, gains; /* bf16: the rows; fp32 elements of one; where the gains are put together */
} part;

static int64_t padded(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static bool is_gain(const weft_engine *engine, int32_t parameter) {
    return !weft_parameter_is_matrix(&engine->declared->parameters[parameter]);
}

/* Elements of a parameter in the shard of place j: [*begin, *end), counted from its first. */
static bool share_of(const part *p, const weft_parameter *parameter, int64_t j, int64_t *begin, int64_t *end) {
    const int64_t from = j * p->shard - parameter->offset, to = from + p->shard;
    *begin = from > 0 ? from : 0;
    *end = to < parameter->numel ? to : parameter->numel;
    return *begin < *end;
}

/* fp32 elements of the gains in one shard. */
static int64_t gains_in(const weft_engine *engine, const part *p, int64_t j) {
    int64_t n = 0, begin = 0, end = 0;
    for (int32_t i = 0; i < p->group->n_members; i++)
        if (is_gain(engine, p->group->members[i]) &&
            share_of(p, &engine->declared->parameters[p->group->members[i]], j, &begin, &end))
            n += end - begin;
    return n;
}

static int64_t all_gains(const weft_engine *engine, const weft_group *group) {
    int64_t n = 0;
    for (int32_t i = 0; i < group->n_members; i++)
        if (is_gain(engine, group->members[i])) n += engine->declared->parameters[group->members[i]].numel;
    return n;
}

/* Lays a unit's slot out; returns its bytes. */
static int64_t lay_out(const weft_engine *engine, const weft_cut *cut, int32_t unit, part parts[2]) {
    const int64_t size = weft_dtype_bytes(engine->dtype);
    int64_t at = 0;
    for (int g = 0; g < 2; g++) {
        part *p = &parts[g];
        memset(p, 0, sizeof *p);
        p->index = engine->layout->units[unit].groups[g];
        if (p->index < 0) continue;
        p->group = &engine->layout->groups[p->index];
        p->shard = weft_hold_piece(engine->layout, p->group, cut->replicas) * cut->groups;
        p->image = at;
        at += padded(size * p->shard * cut->group);
        if (engine->dtype == WEFT_F32) continue;
        for (int32_t j = 0; j < cut->group; j++) {
            const int64_t n = gains_in(engine, p, j);
            if (n > p->row) p->row = n;
        }
        p->rows = at;
        p->gains = p->rows + padded(4 * p->row * cut->group);
        at = p->gains + padded(4 * all_gains(engine, p->group));
    }
    return at;
}

bool weft_gather_is_due(const weft_job_spec *job, int32_t unit) {
    return job->view.units[unit].placement.parameters == WEFT_SHARDED && weft_cut_of(job, unit).group > 1;
}

int64_t weft_gather_bytes(const weft_engine *engine, const weft_job_spec *job, int32_t unit, int64_t *sent) {
    const weft_cut cut = weft_cut_of(job, unit);
    part parts[2];
    *sent = 0;
    if (!weft_gather_is_due(job, unit)) return 0;
    const int64_t bytes = lay_out(engine, &cut, unit, parts);
    for (int g = 0; g < 2; g++)
        *sent += (cut.group - 1) * (weft_dtype_bytes(engine->dtype) * parts[g].shard + 4 * parts[g].row);
    return bytes;
}

/* This rank's shard, rounded into its own row of the image, and its gains into their row. */
static weft_status round_shard(weft_stepper *self, const part *p, weft_ref slot, int64_t place, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_span *span = &engine->holds[WEFT_HOLD_PARAMETERS]->spans[p->index];
    const weft_ref own = weft_ref_at(engine->parameters.ref, 4 * span->at);
    const weft_ref to = weft_ref_at(slot, p->image + weft_dtype_bytes(engine->dtype) * p->shard * place);
    int64_t at = p->rows + 4 * p->row * place, begin = 0, end = 0;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, convert, err, engine->device, NULL, to, engine->dtype, own, WEFT_F32,
                     span->n);
    for (int32_t i = 0; i < p->group->n_members && status == WEFT_OK; i++) {
        const weft_parameter *parameter = &engine->declared->parameters[p->group->members[i]];
        if (!is_gain(engine, p->group->members[i]) || !share_of(p, parameter, place, &begin, &end)) continue;
        WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, weft_ref_at(slot, at),
                         weft_ref_at(own, 4 * (parameter->offset + begin - place * p->shard)), 4 * (end - begin));
        at += 4 * (end - begin);
    }
    return status;
}

static weft_status start_part(weft_stepper *self, const weft_event *event, const part *p, int which, weft_ref slot,
                              weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_cut cut = weft_cut_of(&self->stage->job->spec, event->unit);
    const int64_t place = weft_scope_place(&cut, WEFT_SCOPE_NODE, engine->ranks.rank);
    const weft_span *span = &engine->holds[WEFT_HOLD_PARAMETERS]->spans[p->index];
    weft_transfer image = {.group = weft_ranks_group_of(&engine->ranks, &cut, WEFT_SCOPE_NODE),
                           .to = weft_ref_at(slot, p->image),
                           .from = weft_ref_at(engine->parameters.ref, 4 * span->at),
                           .n = p->shard,
                           .dtype = engine->dtype};
    weft_transfer gains = {.group = image.group, .to = weft_ref_at(slot, p->rows), .n = p->row, .dtype = WEFT_F32};
    weft_status status = WEFT_OK;
    if (engine->dtype != WEFT_F32) {
        status = round_shard(self, p, slot, place, err);
        image.from = weft_ref_at(image.to, weft_dtype_bytes(engine->dtype) * p->shard * place);
    }
    if (status == WEFT_OK)
        status =
            weft_travel_set_out(self, event, 2 * which, engine->ranks.plugin->all_gather, "all_gather", &image, err);
    if (status != WEFT_OK || p->row == 0) return status;
    gains.from = weft_ref_at(gains.to, 4 * p->row * place);
    return weft_travel_set_out(self, event, 2 * which + 1, engine->ranks.plugin->all_gather, "all_gather", &gains, err);
}

weft_status weft_gather_start(weft_stepper *self, const weft_event *event, int32_t slot, weft_error *err) {
    const weft_cut cut = weft_cut_of(&self->stage->job->spec, event->unit);
    weft_status status = WEFT_OK;
    part parts[2];
    if (slot < 0) return WEFT_OK; /* it lies here whole */
    weft_trace_use(self->trace, slot, lay_out(self->engine, &cut, event->unit, parts));
    for (int g = 0; g < 2 && status == WEFT_OK; g++)
        if (parts[g].group != NULL) status = start_part(self, event, &parts[g], g, weft_step_slot(self, slot).ref, err);
    return status;
}

/* One gain, from the rows of the shards that it lies in. */
static weft_status put_together(const weft_stepper *self, const part *p, const weft_cut *cut, weft_ref slot,
                                int32_t member, weft_ref to, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_status status = WEFT_OK;
    for (int64_t j = 0; j < cut->group && status == WEFT_OK; j++) {
        int64_t at = p->rows + 4 * p->row * j, begin = 0, end = 0;
        for (int32_t i = 0; i < member; i++)
            if (is_gain(engine, p->group->members[i]) &&
                share_of(p, &engine->declared->parameters[p->group->members[i]], j, &begin, &end))
                at += 4 * (end - begin);
        if (!share_of(p, &engine->declared->parameters[p->group->members[member]], j, &begin, &end)) continue;
        WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, weft_ref_at(to, 4 * begin),
                         weft_ref_at(slot, at), 4 * (end - begin));
    }
    return status;
}

static weft_status point_to(weft_stepper *self, const part *p, const weft_cut *cut, weft_ref slot, weft_error *err) {
    weft_engine *engine = self->engine;
    int64_t gains = p->gains;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < p->group->n_members && status == WEFT_OK; i++) {
        const int32_t index = p->group->members[i];
        const weft_parameter *parameter = &engine->declared->parameters[index];
        weft_ref at = weft_ref_at(slot, p->image + weft_dtype_bytes(engine->dtype) * parameter->offset);
        if (engine->dtype != WEFT_F32 && is_gain(engine, index)) {
            at = weft_ref_at(slot, gains);
            gains += 4 * parameter->numel;
            status = put_together(self, p, cut, slot, i, at, err);
        }
        engine->compute_refs[index] = at;
        engine->compute_dtypes[index] = is_gain(engine, index) ? WEFT_F32 : engine->dtype;
    }
    return status;
}

weft_status weft_gather_finish(weft_stepper *self, const weft_event *event, int32_t slot, weft_error *err) {
    const weft_cut cut = weft_cut_of(&self->stage->job->spec, event->unit);
    weft_status status = WEFT_OK;
    part parts[2];
    if (slot < 0) return WEFT_OK;
    (void)lay_out(self->engine, &cut, event->unit, parts);
    for (int g = 0; g < 2 && status == WEFT_OK; g++)
        if (parts[g].group != NULL)
            status =
                point_to(self, &parts[g], &cut, weft_engine_slot(self->engine, self->stage->program, slot).ref, err);
    return status;
}

void weft_gather_forget(weft_stepper *self, const weft_event *event) {
    weft_engine *engine = self->engine;
    const weft_ref none = {NULL, 0};
    for (int g = 0; g < 2; g++) {
        const int32_t index = engine->layout->units[event->unit].groups[g];
        for (int32_t i = 0; index >= 0 && i < engine->layout->groups[index].n_members; i++)
            engine->compute_refs[engine->layout->groups[index].members[i]] = none;
    }
}
