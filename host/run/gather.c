/* host/run/gather.c: see gather.h. */
#include "run/gather.h"

#include "program/gathered.h"
#include "plugin/enter.h"
#include "run/bind.h"
#include "run/in_flight.h"

/* This rank's shard, rounded into its own row of the image, and its gains into their row. */
static weft_status round_shard(weft_stepper *self, weft_stream *stream, const weft_gathered_part *p, weft_ref slot,
                               int64_t place, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_span *span = &engine->plan.holds[WEFT_HOLD_PARAMETERS]->spans[p->index];
    const weft_ref to = weft_ref_at(slot, p->image + weft_dtype_span(p->dtype, p->shard) * place);
    int64_t at = p->rows + weft_f32_bytes(p->row) * place, begin = 0, end = 0;
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->kernels, convert, err, engine->device, stream, to, p->dtype,
                     weft_ref_at(engine->parameters.ref, span->at), span->dtype, span->n);
    for (int32_t i = 0; i < p->group->n_members && status == WEFT_OK; i++) {
        const weft_parameter *parameter = &engine->plan.declared->parameters[p->group->members[i]];
        if (!weft_gathered_is_gain(&engine->plan, p->group->members[i]) ||
            !weft_gathered_share(p, parameter, place, &begin, &end))
            continue;
        WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, stream, weft_ref_at(slot, at),
                         weft_ref_at(engine->parameters.ref, weft_span_at(span, parameter->offset + begin)),
                         weft_f32_bytes(end - begin));
        at += weft_f32_bytes(end - begin);
    }
    return status;
}

/* A GATHER that has begun. */
typedef struct gathering {
    const weft_instruction *instruction;
    weft_planned_exchange planned;
    weft_stream *stream;
    weft_ref slot;
} gathering;

/* A row of each rank's to all, `to` being where they come to lie. */
static weft_status start_rows(weft_stepper *self, const gathering *g, int which, weft_transfer *rows, weft_error *err) {
    const weft_transfer planned = weft_in_flight_transfer(self, &g->planned);
    rows->group = planned.group;
    rows->stream = g->stream;
    return weft_in_flight_set_out(self, g->instruction, which, g->planned.way, rows, err);
}

/* The group's image: rounded here first, or straight from where it is stored. Blocks go as bytes. */
static weft_status start_image(weft_stepper *self, const gathering *g, const weft_gathered_part *p, int which,
                               weft_error *err) {
    const weft_engine *engine = self->engine;
    const bool is_plain = weft_dtype_block(p->dtype) == 1;
    const int64_t bytes = weft_dtype_span(p->dtype, p->shard);
    weft_transfer image = {.to = weft_ref_at(g->slot, p->image),
                           .from = weft_ref_at(engine->parameters.ref,
                                               engine->plan.holds[WEFT_HOLD_PARAMETERS]->spans[p->index].at),
                           .n = is_plain ? p->shard : bytes,
                           .dtype = is_plain ? p->dtype : WEFT_U8};
    weft_status status = WEFT_OK;
    if (p->rounded) {
        status = round_shard(self, g->stream, p, g->slot, g->planned.place, err);
        image.from = weft_ref_at(image.to, bytes * g->planned.place);
    }
    return status == WEFT_OK ? start_rows(self, g, which, &image, err) : status;
}

static weft_status start_gains(weft_stepper *self, const gathering *g, const weft_gathered_part *p, int which,
                               weft_error *err) {
    weft_transfer gains = {.to = weft_ref_at(g->slot, p->rows), .n = p->row, .dtype = WEFT_F32};
    if (p->row == 0) return WEFT_OK;
    gains.from = weft_ref_at(gains.to, weft_f32_bytes(p->row) * g->planned.place);
    return start_rows(self, g, which, &gains, err);
}

weft_status weft_gather_start(weft_stepper *self, const weft_instruction *instruction, int32_t slot, weft_error *err) {
    const weft_plan *plan = &self->engine->plan;
    const weft_job_spec *job = &self->mode_plan->job->spec;
    gathering g = {.instruction = instruction,
                   .planned = weft_exchange_plan(plan, job, instruction, self->engine->ranks.rank)};
    weft_status status = WEFT_OK;
    weft_gathered_part parts[WEFT_UNIT_GROUPS];
    if (slot < 0) return WEFT_OK; /* it lies here whole */
    g.slot = weft_step_slot(self, slot).ref;
    weft_trace_use(self->trace, slot, weft_gathered_layout(plan, &g.planned.cut, instruction->unit, parts));
    status = weft_in_flight_depart(self, instruction, &g.stream, err);
    for (int32_t i = 0; i < plan->layout->units[instruction->unit].n_groups && status == WEFT_OK; i++) {
        status = start_image(self, &g, &parts[i], 2 * i, err);
        if (status == WEFT_OK) status = start_gains(self, &g, &parts[i], 2 * i + 1, err);
    }
    return status;
}

/* One gain, from the rows of the shards that it lies in. */
static weft_status put_gain_together(const weft_stepper *self, const weft_gathered_part *p, const weft_cut *cut,
                                     weft_ref slot, int32_t member, weft_ref to, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_status status = WEFT_OK;
    for (int64_t j = 0; j < cut->group && status == WEFT_OK; j++) {
        int64_t at = p->rows + weft_f32_bytes(p->row) * j, begin = 0, end = 0;
        for (int32_t i = 0; i < member; i++)
            if (weft_gathered_is_gain(&engine->plan, p->group->members[i]) &&
                weft_gathered_share(p, &engine->plan.declared->parameters[p->group->members[i]], j, &begin, &end))
                at += weft_f32_bytes(end - begin);
        if (!weft_gathered_share(p, &engine->plan.declared->parameters[p->group->members[member]], j, &begin, &end))
            continue;
        WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL,
                         weft_ref_at(to, weft_f32_bytes(begin)), weft_ref_at(slot, at), weft_f32_bytes(end - begin));
    }
    return status;
}

static weft_status point_members_at(weft_stepper *self, const weft_gathered_part *p, const weft_cut *cut, weft_ref slot,
                                    weft_error *err) {
    weft_engine *engine = self->engine;
    int64_t gains = p->gains;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < p->group->n_members && status == WEFT_OK; i++) {
        const int32_t index = p->group->members[i];
        const weft_parameter *parameter = &engine->plan.declared->parameters[index];
        const bool apart = (p->rounded || p->widened) && weft_gathered_is_gain(&engine->plan, index);
        weft_ref at = weft_ref_at(slot, p->image + weft_dtype_span(p->dtype, parameter->offset));
        if (apart) {
            const weft_ref image = at;
            at = weft_ref_at(slot, gains);
            gains += weft_f32_bytes(parameter->numel);
            if (p->rounded) status = put_gain_together(self, p, cut, slot, i, at, err);
            else
                WEFT_PLUGIN_CALL(status, engine->kernels, convert, err, engine->device, NULL, at, WEFT_F32, image,
                                 p->dtype, parameter->numel);
        }
        engine->compute_refs[index] = at;
        engine->compute_dtypes[index] = apart ? WEFT_F32 : p->dtype;
    }
    return status;
}

weft_status weft_gather_finish(weft_stepper *self, const weft_instruction *instruction, int32_t slot, weft_error *err) {
    const weft_cut cut = weft_cut_of(&self->mode_plan->job->spec, instruction->unit);
    weft_status status = WEFT_OK;
    weft_gathered_part parts[WEFT_UNIT_GROUPS];
    if (slot < 0) return WEFT_OK;
    (void)weft_gathered_layout(&self->engine->plan, &cut, instruction->unit, parts);
    for (int32_t g = 0; g < self->engine->plan.layout->units[instruction->unit].n_groups && status == WEFT_OK; g++)
        status = point_members_at(self, &parts[g], &cut,
                                  weft_engine_slot(self->engine, self->mode_plan->program, slot).ref, err);
    return status;
}

void weft_gather_forget(weft_stepper *self, const weft_instruction *instruction) {
    weft_engine *engine = self->engine;
    const weft_ref none = {NULL, 0};
    const weft_unit *unit = &engine->plan.layout->units[instruction->unit];
    for (int32_t g = 0; g < unit->n_groups; g++) {
        const weft_group *group = &engine->plan.layout->groups[unit->groups[g]];
        for (int32_t i = 0; i < group->n_members; i++) engine->compute_refs[group->members[i]] = none;
    }
}
