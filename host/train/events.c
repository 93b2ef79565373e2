/* host/train/events.c: see events.h. One function per event kind. */
#include "train/events.h"

#include "plugin/enter.h"
#include "train/bind.h"
#include "train/blame.h"
#include "train/compute.h"
#include "train/leaf.h"

static weft_status on_count(void *context, weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    weft_status status = weft_step_count(self, err);
    const double count = (double)self->count;
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, engine->scalars.count, &count,
                         sizeof count);
    return status;
}

static weft_status on_forward(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    weft_graph_binding binding;
    const weft_graph *graph = NULL;
    weft_status status = weft_step_bind(self, &binding, &graph, event, slots, err);
    if (status == WEFT_OK) status = weft_graph_forward(graph, &binding, false, err);
    weft_step_report(self, slots);
    if (status == WEFT_OK && self->find_culprit) status = weft_blame_carry(self, event, &binding, err);
    return status;
}

static weft_status on_recompute(void *context, const weft_event *event, const weft_event_slots *slots,
                                weft_error *err) {
    weft_stepper *self = context;
    weft_graph_binding binding;
    const weft_graph *graph = NULL;
    weft_status status = weft_step_bind(self, &binding, &graph, event, slots, err);
    if (status == WEFT_OK) status = weft_graph_forward(graph, &binding, true, err);
    weft_step_report(self, slots);
    return status;
}

static weft_status on_backward(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    weft_graph_binding binding;
    const weft_graph *graph = NULL;
    weft_status status = weft_step_bind(self, &binding, &graph, event, slots, err);
    if (status == WEFT_OK) status = weft_graph_backward(graph, &binding, err);
    weft_step_claim_gradients(self, slots);
    weft_step_report(self, slots);
    return status;
}

/* The ordered sum: the first leaf is copied, every later one added. */
static weft_status on_reduce(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    const weft_group *group = &engine->layout->groups[engine->layout->units[event->unit].groups[0]];
    const int32_t slot = slots->gradients[event->unit];
    const weft_ref sum = weft_ref_at(engine->gradients.ref, 4 * group->base);
    const weft_ref leaf = weft_step_gradient(self, event->unit, slot).ref;
    const weft_add args = {
        .struct_size = (uint32_t)sizeof args, .a = sum, .b = leaf, .y = sum, .n = group->numel, .dtype = WEFT_F32};
    weft_status status = WEFT_OK;
    if (self->stage->program->slots[slot].offset < 0) return WEFT_OK;
    weft_trace_use(self->trace, slot, 4 * group->numel);
    if (event->leaf == 0)
        WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, sum, leaf, 4 * group->numel);
    else WEFT_PLUGIN_CALL(status, engine->kernels, add, err, engine->device, NULL, &args);
    return status;
}

static weft_status on_norm(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    const weft_slot_ref work = weft_step_slot(self, slots->work);
    weft_clip clip = {.struct_size = (uint32_t)sizeof clip};
    weft_status status = WEFT_OK;
    (void)event;
    for (int32_t i = 0; i < engine->declared->n_parameters && status == WEFT_OK; i++) {
        const weft_parameter *p = &engine->declared->parameters[i];
        weft_square_sum args = {.struct_size = (uint32_t)sizeof args, .n = p->numel, .workspace = work.ref};
        if (!p->trainable) continue;
        args.x = weft_ref_at(engine->gradients.ref, 4 * weft_layout_offset(engine->layout, p));
        args.out = weft_ref_at(engine->scalars.square_sums, 8 * clip.n++);
        if (slots->work >= 0)
            weft_trace_use(self->trace, slots->work, engine->kernels->square_sum_workspace(engine->device, &args));
        WEFT_PLUGIN_CALL(status, engine->kernels, square_sum, err, engine->device, NULL, &args);
    }
    clip.square_sums = engine->scalars.square_sums;
    clip.norm = engine->scalars.norm;
    clip.coefficient = engine->scalars.coefficient;
    clip.skip = engine->scalars.skip;
    clip.count = engine->scalars.count;
    clip.clip = self->clip;
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, clip, err, engine->device, NULL, &clip);
    return status;
}

static weft_status update_group(weft_stepper *self, int32_t index, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_group *group = &engine->layout->groups[index];
    weft_update args = {.struct_size = (uint32_t)sizeof args};
    weft_status status = WEFT_OK;
    args.kernel = engine->optimizer_plugin->update(engine->optimizer);
    args.weight = weft_ref_at(engine->parameters.ref, 4 * group->base);
    args.gradient = weft_ref_at(engine->gradients.ref, 4 * group->base);
    for (int64_t i = 0; i < engine->n_states; i++) args.states[i] = weft_ref_at(engine->state[i].ref, 4 * group->base);
    args.hp = engine->scalars.hp;
    args.ranges = weft_ref_at(engine->ranges.ref, engine->group_ranges[index] * (int64_t)sizeof(weft_range));
    args.n_ranges = engine->group_ranges[index + 1] - engine->group_ranges[index];
    args.coefficient = engine->scalars.coefficient;
    args.skip = engine->scalars.skip;
    args.n = group->numel;
    WEFT_PLUGIN_CALL(status, engine->kernels, update, err, engine->device, NULL, &args);
    return status;
}

static weft_status on_step(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    const weft_step_info info = {(uint32_t)sizeof info, 0, engine->updates + 1, self->lr};
    weft_status status = WEFT_OK;
    (void)event;
    (void)slots;
    if (self->count == 0) return WEFT_OK;
    WEFT_PLUGIN_CALL(status, engine->optimizer_plugin, prepare, err, engine->optimizer, self->hp, &info);
    if (status == WEFT_OK)
        WEFT_PLUGIN_CALL(status, engine->kernels, write, err, engine->device, NULL, engine->scalars.hp, self->hp,
                         engine->optimizer_plugin->hp_size(engine->optimizer));
    for (int32_t g = 0; g < engine->layout->n_trainable_groups && status == WEFT_OK; g++)
        status = update_group(self, g, err);
    if (status == WEFT_OK) status = weft_compute_copy_refresh(engine, true, err);
    return status;
}

static weft_exec_table exec_table(weft_stepper *self) {
    const weft_exec_table table = {.context = self,
                                   .count = on_count,
                                   .forward = on_forward,
                                   .recompute = on_recompute,
                                   .backward = on_backward,
                                   .reduce = on_reduce,
                                   .norm = on_norm,
                                   .step = on_step};
    return table;
}

weft_status weft_step_run_events(weft_stepper *self, const weft_stage *stage, weft_error *err) {
    const weft_exec_table table = exec_table(self);
    self->stage = stage;
    self->leaf_now = -1;
    memset(self->used, 0, (size_t)stage->program->n_slots * sizeof *self->used);
    return weft_program_execute(stage->program, &stage->job->spec, &table, self->trace, self->step, err);
}
