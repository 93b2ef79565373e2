/* host/train/step.c: see step.h. One function per event kind. */
#include "train/step.h"

#include "model/convert.h"
#include "plugin/crash.h"
#include "report/clock.h"
#include "train/compute.h"

#include <math.h>
#include <stdlib.h>

static weft_leaf_request leaf_request(const weft_stepper *self, int32_t leaf) {
    weft_leaf_request request = {.struct_size = (uint32_t)sizeof request};
    request.split = self->split;
    request.rows = self->stage->graphs->rows;
    request.first_row = self->first_row + (uint64_t)leaf * (uint64_t)request.rows;
    return request;
}

static weft_status on_count(void *context, weft_error *err) {
    weft_stepper *self = context;
    weft_status status = WEFT_OK;
    const double begin = weft_clock_seconds();
    self->count = 0;
    self->places = 0;
    for (int32_t m = 0; m < self->stage->program->leaves && status == WEFT_OK; m++) {
        const weft_leaf_request request = leaf_request(self, m);
        weft_leaf shape = {.struct_size = (uint32_t)sizeof shape};
        status = self->data_plugin->shape(self->data, &shape, &request, err);
        self->leaf_targets[m] = shape.n_targets;
        self->count += shape.n_targets;
        self->places += (int64_t)shape.rows * shape.length;
    }
    self->data_seconds += weft_clock_seconds() - begin;
    return status;
}

/* Puts leaf m into the host's arrays and its slot, once. */
static weft_status load_leaf(weft_stepper *self, int32_t m, weft_slot_ref slot, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_leaf_request request = leaf_request(self, m);
    const double begin = weft_clock_seconds();
    const void *parts[WEFT_LEAF_PARTS] = {self->leaf.ids, self->leaf.targets, self->leaf.weights, self->leaf.starts,
                                          self->leaf.positions};
    weft_status status = WEFT_OK;
    if (self->leaf_now == m) return WEFT_OK;
    weft_crash_doing("data leaf");
    status = self->data_plugin->leaf(self->data, &self->leaf, &request, err);
    weft_crash_doing(NULL);
    self->data_seconds += weft_clock_seconds() - begin;
    for (int i = 0; i < WEFT_LEAF_PARTS && status == WEFT_OK; i++) {
        const int64_t at = weft_leaf_part_offset(self->leaf.rows, self->leaf.length, i);
        status = engine->kernels->write(engine->device, NULL, weft_ref_at(slot.ref, at), parts[i],
                                        (int64_t)self->leaf.rows * self->leaf.length * 4, err);
    }
    self->leaf_now = status == WEFT_OK ? m : -1;
    return status;
}

/* A slot as the graphs take it, with the place where they note what they touch. */
static weft_slot_ref slot_of(const weft_stepper *self, int32_t index) {
    weft_slot_ref out = weft_engine_slot(self->engine, self->stage->program, index);
    if (index >= 0) out.used = &self->used[index];
    return out;
}

static weft_slot_ref leaf_part(const weft_stepper *self, weft_slot_ref slot, int part) {
    weft_slot_ref out = slot;
    out.start = weft_leaf_part_offset(self->leaf.rows, self->leaf.length, part);
    out.ref = weft_ref_at(slot.ref, out.start);
    out.bytes = (int64_t)self->leaf.rows * self->leaf.length * 4;
    if (out.start + out.bytes > slot.bytes) out.bytes = slot.bytes - out.start;
    return out;
}

static void touch(const weft_stepper *self, int32_t slot) {
    if (slot >= 0) weft_trace_use(self->trace, slot, self->used[slot]);
}

/* A leaf gradient is needed whole from the first BACKWARD that writes a part of it: REDUCE takes the padding along. */
static void claim_gradients(const weft_stepper *self, const weft_event_slots *slots) {
    const weft_layout *layout = self->engine->layout;
    for (int32_t u = 0; u < layout->n_units; u++)
        if (slots->gradients[u] >= 0)
            weft_trace_use(self->trace, slots->gradients[u], 4 * layout->groups[layout->units[u].groups[0]].numel);
}

/* Tells the trace what the event touched. */
static void report_use(const weft_stepper *self, const weft_event_slots *slots) {
    touch(self, slots->leaf);
    touch(self, slots->carry_in);
    touch(self, slots->carry_out);
    touch(self, slots->tape);
    touch(self, slots->work);
    touch(self, slots->d_carry_out);
    touch(self, slots->d_carry_in);
    for (int32_t u = 0; slots->gradients != NULL && u < self->engine->layout->n_units; u++)
        touch(self, slots->gradients[u]);
}

/* Where a unit's leaf gradient lies: its slot, or the sum itself where the step has one leaf. */
static weft_slot_ref unit_gradient(const weft_stepper *self, int32_t unit, int32_t slot) {
    const weft_engine *engine = self->engine;
    const weft_group *group = &engine->layout->groups[engine->layout->units[unit].groups[0]];
    weft_slot_ref out = slot_of(self, slot);
    if (self->stage->program->slots[slot].offset >= 0) return out;
    out.ref = weft_ref_at(engine->gradients.ref, 4 * group->base);
    out.bytes = 4 * group->numel;
    return out;
}

static void bind_gradients(weft_stepper *self, const weft_event_slots *slots) {
    const weft_declared *declared = self->engine->declared;
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        const weft_slot_ref none = {0};
        const int32_t slot = slots->gradients != NULL ? slots->gradients[p->unit] : -1;
        self->gradients[i] = none;
        if (!p->trainable || slot < 0) continue;
        self->gradients[i] = unit_gradient(self, p->unit, slot);
        self->gradients[i].start = 4 * p->offset;
        self->gradients[i].ref = weft_ref_at(self->gradients[i].ref, 4 * p->offset);
        self->gradients[i].bytes -= 4 * p->offset;
    }
}

static weft_status bind(weft_stepper *self, weft_graph_binding *out, const weft_graph **graph, const weft_event *event,
                        const weft_event_slots *slots, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_slot_ref leaf = slot_of(self, slots->leaf);
    const weft_graph_binding empty = {0};
    weft_status status = load_leaf(self, event->leaf, leaf, err);
    if (status != WEFT_OK) return status;
    *graph = weft_graph_set_at(self->stage->graphs, self->leaf.length, event->segment);
    if (*graph == NULL)
        return weft_error_set(err, WEFT_E_PLUGIN, "the data gave a leaf of length %d, which it did not declare",
                              self->leaf.length);
    *out = empty;
    out->parameters = engine->compute_refs;
    out->tables = engine->tables;
    out->ids = leaf_part(self, leaf, 0);
    out->targets = leaf_part(self, leaf, 1);
    out->weights = leaf_part(self, leaf, 2);
    out->starts = leaf_part(self, leaf, 3);
    out->positions = leaf_part(self, leaf, 4);
    out->carry_in = slot_of(self, slots->carry_in);
    out->carry_out = slot_of(self, slots->carry_out);
    out->d_carry_out = slot_of(self, slots->d_carry_out);
    out->d_carry_in = slot_of(self, slots->d_carry_in);
    out->tape = slot_of(self, slots->tape);
    out->work = slot_of(self, slots->work);
    out->loss = weft_ref_at(engine->scalars.losses, 8 * (int64_t)event->leaf);
    out->count = (double)self->count;
    out->sink = self->sink;
    bind_gradients(self, slots);
    out->gradients = self->gradients;
    return WEFT_OK;
}

/* After a loss that is not finite: the first segment whose output is not. */
static weft_status look_at_carry(weft_stepper *self, const weft_event *event, const weft_graph_binding *binding,
                                 weft_error *err) {
    const weft_engine *engine = self->engine;
    const int64_t n = (int64_t)self->leaf.rows * self->leaf.length * engine->declared->carry_width;
    const int64_t size = weft_dtype_bytes(engine->dtype);
    float *values = NULL;
    void *stored = NULL; /* as the carry has them */
    weft_status status = WEFT_OK;
    if (binding->carry_out.ref.buffer == NULL) return WEFT_OK;
    values = malloc((size_t)(n * ((int64_t)sizeof *values + size)));
    if (values == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory to look for the first bad number");
    stored = values + n;
    status = engine->kernels->read(engine->device, NULL, stored, binding->carry_out.ref, n * size, err);
    if (status == WEFT_OK) (void)weft_convert(values, WEFT_F32, stored, engine->dtype, n);
    for (int64_t i = 0; i < n && status == WEFT_OK; i++)
        if (!isfinite(values[i]))
            status = weft_error_set(err, WEFT_E_NUMERIC,
                                    "the forward of %s is the first to give a number that is not "
                                    "finite",
                                    engine->declared->segments[event->segment].name);
    free(values);
    return status;
}

static weft_status on_forward(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    weft_graph_binding binding;
    const weft_graph *graph = NULL;
    weft_status status = bind(self, &binding, &graph, event, slots, err);
    if (status == WEFT_OK) status = weft_graph_forward(graph, &binding, false, err);
    report_use(self, slots);
    if (status == WEFT_OK && self->find_culprit) status = look_at_carry(self, event, &binding, err);
    return status;
}

static weft_status on_recompute(void *context, const weft_event *event, const weft_event_slots *slots,
                                weft_error *err) {
    weft_stepper *self = context;
    weft_graph_binding binding;
    const weft_graph *graph = NULL;
    weft_status status = bind(self, &binding, &graph, event, slots, err);
    if (status == WEFT_OK) status = weft_graph_forward(graph, &binding, true, err);
    report_use(self, slots);
    return status;
}

static weft_status on_backward(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    weft_graph_binding binding;
    const weft_graph *graph = NULL;
    weft_status status = bind(self, &binding, &graph, event, slots, err);
    if (status == WEFT_OK) status = weft_graph_backward(graph, &binding, err);
    claim_gradients(self, slots);
    report_use(self, slots);
    return status;
}

/* The ordered sum: the first leaf is copied, every later one added. */
static weft_status on_reduce(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    const weft_group *group = &engine->layout->groups[engine->layout->units[event->unit].groups[0]];
    const int32_t slot = slots->gradients[event->unit];
    const weft_ref sum = weft_ref_at(engine->gradients.ref, 4 * group->base);
    const weft_ref leaf = unit_gradient(self, event->unit, slot).ref;
    const weft_add args = {
        .struct_size = (uint32_t)sizeof args, .a = sum, .b = leaf, .y = sum, .n = group->numel, .dtype = WEFT_F32};
    if (self->stage->program->slots[slot].offset < 0) return WEFT_OK;
    weft_trace_use(self->trace, slot, 4 * group->numel);
    if (event->leaf == 0) return engine->kernels->copy(engine->device, NULL, sum, leaf, 4 * group->numel, err);
    return engine->kernels->add(engine->device, NULL, &args, err);
}

static weft_status on_norm(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    const weft_slot_ref work = slot_of(self, slots->work);
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
        status = engine->kernels->square_sum(engine->device, NULL, &args, err);
    }
    clip.square_sums = engine->scalars.square_sums;
    clip.norm = engine->scalars.norm;
    clip.coefficient = engine->scalars.coefficient;
    clip.skip = engine->scalars.skip;
    clip.count = (double)self->count;
    clip.clip = self->clip;
    return status == WEFT_OK ? engine->kernels->clip(engine->device, NULL, &clip, err) : status;
}

static weft_status update_group(weft_stepper *self, int32_t index, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_group *group = &engine->layout->groups[index];
    weft_update args = {.struct_size = (uint32_t)sizeof args};
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
    return engine->kernels->update(engine->device, NULL, &args, err);
}

static weft_status on_step(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    const weft_step_info info = {(uint32_t)sizeof info, 0, engine->updates + 1, self->lr};
    weft_status status = WEFT_OK;
    (void)event;
    (void)slots;
    if (self->count == 0) return WEFT_OK;
    weft_crash_doing("optimizer prepare");
    status = engine->optimizer_plugin->prepare(engine->optimizer, self->hp, &info, err);
    if (status == WEFT_OK)
        status = engine->kernels->write(engine->device, NULL, engine->scalars.hp, self->hp,
                                        engine->optimizer_plugin->hp_size(engine->optimizer), err);
    weft_crash_doing("optimizer update");
    for (int32_t g = 0; g < engine->layout->n_trainable_groups && status == WEFT_OK; g++)
        status = update_group(self, g, err);
    if (status == WEFT_OK) status = weft_compute_copy_refresh(engine, true, err);
    weft_crash_doing(NULL);
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

static weft_status run_program(weft_stepper *self, const weft_stage *stage, weft_error *err) {
    const weft_exec_table table = exec_table(self);
    self->stage = stage;
    self->leaf_now = -1;
    memset(self->used, 0, (size_t)stage->program->n_slots * sizeof *self->used);
    return weft_program_execute(stage->program, &stage->job->spec, &table, self->trace, self->step, err);
}

static weft_status read_losses(weft_stepper *self, int32_t leaves, weft_error *err) {
    const weft_engine *engine = self->engine;
    weft_status status = WEFT_OK;
    self->result.loss_sum = 0.0;
    for (int32_t m = 0; m < leaves && status == WEFT_OK; m++) {
        double loss = 0.0;
        status = engine->kernels->read(engine->device, NULL, &loss, weft_ref_at(engine->scalars.losses, 8 * (int64_t)m),
                                       8, err);
        self->result.loss_sum += loss;
    }
    return status;
}

/* Which part of the gradient is not finite: the highest segment's parameter, since backward came from there. */
static weft_status blame_gradient(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    int64_t at = 0;
    const char *name = "the gradient norm";
    for (int32_t i = 0; i < engine->declared->n_parameters; i++) {
        double sum = 0.0;
        if (!engine->declared->parameters[i].trainable) continue;
        if (engine->kernels->read(engine->device, NULL, &sum, weft_ref_at(engine->scalars.square_sums, 8 * at++), 8,
                                  err) == WEFT_OK &&
            !isfinite(sum))
            name = engine->declared->parameters[i].name;
    }
    return weft_error_set(err, WEFT_E_NUMERIC,
                          "step %llu: the gradient of %s is not finite (loss %.6g): lower the learning "
                          "rate, or set [train] clip",
                          (unsigned long long)self->step, name, self->result.loss_sum / (double)self->count);
}

/* Runs the forward again, looking at every carry. */
static weft_status blame_forward(weft_stepper *self, weft_error *err) {
    weft_status status = WEFT_OK;
    self->find_culprit = true;
    status = run_program(self, self->stage, err);
    self->find_culprit = false;
    if (status == WEFT_OK)
        status = weft_error_set(err, WEFT_E_NUMERIC, "%s is the first to give a number that is not finite",
                                self->engine->declared->segments[self->engine->declared->n_segments - 1].name);
    if (self->step == 0) return weft_error_prefix(err, "evaluation: the loss is not finite; ");
    return weft_error_prefix(err, "step %llu: the loss is not finite; ", (unsigned long long)self->step);
}

weft_status weft_stepper_train(weft_stepper *self, weft_step_result *out, uint64_t step, double lr, double clip,
                               weft_error *err) {
    weft_engine *engine = self->engine;
    const weft_stage *stage = &engine->train;
    weft_status status = WEFT_OK;
    self->step = step;
    self->lr = lr;
    self->clip = clip;
    self->split = WEFT_SPLIT_TRAIN;
    self->first_row = (step - 1) * (uint64_t)stage->graphs->rows * (uint64_t)stage->program->leaves;
    self->data_seconds = 0.0;
    weft_crash_step(step);
    status = run_program(self, stage, err);
    if (status == WEFT_OK) status = read_losses(self, stage->program->leaves, err);
    if (status == WEFT_OK)
        status = engine->kernels->read(engine->device, NULL, &self->result.norm, engine->scalars.norm, 8, err);
    if (status != WEFT_OK) return status;
    self->result.n_targets = self->count;
    self->result.n_places = self->places;
    self->result.lr = lr;
    self->result.data_seconds = self->data_seconds;
    self->result.skipped = self->count == 0;
    if (self->result.skipped) self->result.norm = 0.0;
    else if (!isfinite(self->result.loss_sum)) status = blame_forward(self, err);
    else if (!isfinite(self->result.norm)) status = blame_gradient(self, err);
    if (status != WEFT_OK) return status;
    engine->updates += !self->result.skipped;
    *out = self->result;
    return WEFT_OK;
}

weft_status weft_stepper_evaluate(weft_stepper *self, weft_step_result *out, int32_t split, uint64_t first_row,
                                  weft_error *err) {
    const weft_stage *stage = &self->engine->evaluate;
    weft_status status = WEFT_OK;
    self->split = split;
    self->first_row = first_row;
    self->step = 0;
    self->stage = stage;
    self->leaf_now = -1;
    self->data_seconds = 0.0;
    memset(&self->result, 0, sizeof self->result);
    status = on_count(self, err);
    if (status == WEFT_OK && self->count > 0) status = run_program(self, stage, err);
    if (status == WEFT_OK) status = read_losses(self, self->count > 0 ? 1 : 0, err);
    if (status != WEFT_OK) return status;
    self->result.n_targets = self->count;
    self->result.n_places = self->places;
    self->result.data_seconds = self->data_seconds;
    if (!isfinite(self->result.loss_sum)) return blame_forward(self, err);
    *out = self->result;
    return WEFT_OK;
}

static int32_t most_events(const weft_engine *engine) {
    const int32_t train = engine->train.program != NULL ? engine->train.program->n_events : 0;
    const int32_t evaluate = engine->evaluate.program != NULL ? engine->evaluate.program->n_events : 0;
    return train > evaluate ? train : evaluate;
}

static int32_t most_slots(const weft_engine *engine) {
    const int32_t train = engine->train.program != NULL ? engine->train.program->n_slots : 0;
    const int32_t evaluate = engine->evaluate.program != NULL ? engine->evaluate.program->n_slots : 0;
    return train > evaluate ? train : evaluate;
}

weft_status weft_stepper_create(weft_stepper **out, weft_engine *engine, const weft_data_plugin *data_plugin,
                                weft_data *data, weft_error *err) {
    const int64_t rows = engine->spec.rows > engine->spec.evaluate_rows ? engine->spec.rows
                                                                        : engine->spec.evaluate_rows;
    const size_t slots = (size_t)most_slots(engine);
    const size_t places = (size_t)(rows * weft_engine_table_rows(&engine->spec)) + 1;
    weft_stepper *self = calloc(1, sizeof *self);
    int32_t *arrays = calloc(places * WEFT_LEAF_PARTS, sizeof *arrays);
    weft_status status = WEFT_OK;
    if (self != NULL) {
        self->engine = engine;
        self->data_plugin = data_plugin;
        self->data = data;
        self->leaf_targets = calloc((size_t)engine->spec.leaves + 1, sizeof *self->leaf_targets);
        self->gradients = calloc((size_t)engine->declared->n_parameters + 1, sizeof *self->gradients);
        self->used = calloc(slots + 1, sizeof *self->used);
        self->hp = calloc(1, 256);
        self->leaf.ids = arrays;
    }
    if (self == NULL || arrays == NULL || self->leaf_targets == NULL || self->gradients == NULL || self->used == NULL ||
        self->hp == NULL) {
        free(self == NULL ? arrays : NULL);
        weft_stepper_destroy(self);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a leaf of %zu places", places);
    }
    self->leaf.struct_size = (uint32_t)sizeof self->leaf;
    self->leaf.targets = arrays + places;
    self->leaf.starts = arrays + 2 * places;
    self->leaf.positions = arrays + 3 * places;
    self->leaf.weights = (float *)(void *)(arrays + 4 * places);
    status = weft_trace_create(&self->trace, most_events(engine) > 4096 ? most_events(engine) : 4096, err);
    if (status == WEFT_OK) *out = self;
    else weft_stepper_destroy(self);
    return status;
}

void weft_stepper_destroy(weft_stepper *self) {
    if (self == NULL) return;
    weft_trace_destroy(self->trace);
    free(self->leaf.ids);
    free(self->leaf_targets);
    free(self->gradients);
    free(self->used);
    free(self->hp);
    free(self);
}
