/* host/run/run_instructions.c: one function per kind of instruction; communication.c has those that communicate. */
#include "launch/heartbeat.h"
#include "plugin/enter.h"
#include "program/budget.h"
#include "program/exchange.h"
#include "run/values.h"

enum { HP_GUARD = 0xA5 };

/* Calls the optimizer's prepare for the next update, with the step's learning rate. */
static weft_status prepare_update(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_step_info info = {(uint32_t)sizeof info, 0, engine->updates + 1, self->lr};
    const size_t n = (size_t)engine->plan.hp_bytes;
    unsigned char *guard = (unsigned char *)self->hp + n; /* after hp_size bytes */
    weft_status status = WEFT_OK;
    memset(guard, HP_GUARD, WEFT_MAX_HP - n);
    WEFT_PLUGIN_CALL(status, engine->optimizer_plugin, prepare, err, engine->optimizer, self->hp, &info);
    for (size_t i = 0; i < WEFT_MAX_HP - n && status == WEFT_OK; i++)
        if (guard[i] != HP_GUARD)
            status = weft_plugin_blame(engine->optimizer_plugin,
                                       weft_error_set(err, WEFT_E_PLUGIN,
                                                      "writes byte %zu of hp in its prepare, and its hp_size is %zu",
                                                      n + i, n),
                                       err);
    return status;
}

/* The counter of the model's random numbers for dropout. */
static void put_first_rows(weft_stepper *self) {
    const int64_t n = weft_budget_first_rows(&self->engine->plan) / weft_dtype_bytes(WEFT_I64);
    for (int64_t m = 0; m < n && self->step > 0; m++)
        self->first_out[m] = (int64_t)self->first_row + m * self->mode_plan->graphs->rows;
}

weft_status weft_step_send_first_rows(weft_stepper *self, weft_error *err) {
    const int64_t bytes = weft_budget_first_rows(&self->engine->plan);
    if (bytes == 0) return WEFT_OK;
    put_first_rows(self);
    return weft_stream_sync_upload(&self->order, self->engine->scalars.first, self->first_out, bytes, NULL, err);
}

/* COUNT, followed by the seed of the losses. */
static void put_count(const weft_stepper *self) {
    const weft_engine *engine = self->engine;
    const bool scales = weft_plan_scales(&engine->plan) && self->count > 0;
    const double count = (double)self->count;
    *self->count_out = count;
    *(float *)(void *)(self->count_out + 1) = scales ? (float)((double)engine->scale.scale / count) : 1.0f;
}

weft_status weft_step_put_numbers(weft_stepper *self, weft_error *err) {
    put_count(self);
    put_first_rows(self);
    return self->step > 0 ? prepare_update(self, err) : WEFT_OK;
}

static weft_status on_count(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                            weft_error *err) {
    weft_stepper *self = context;
    (void)instruction;
    (void)slots;
    put_count(self);
    return weft_stream_sync_upload(&self->order, self->engine->scalars.count, self->count_out,
                                   weft_dtype_bytes(WEFT_F64) + weft_dtype_bytes(WEFT_F32), NULL, err);
}

/* Waits after a timed instruction: work of a device that queues would count for a later one. */
static weft_status end_instruction(void *context, weft_status status, weft_error *err) {
    const weft_stepper *self = context;
    if (status == WEFT_OK && self->sink != NULL) status = weft_stream_sync_finish(&self->order, err);
    if (self->ranges != NULL) self->ranges->end(self->engine->device);
    return status;
}

static void bind_gradients(weft_stepper *self, const weft_instruction_slots *slots) {
    const weft_declared *declared = self->engine->plan.declared;
    for (int32_t i = 0; i < declared->n_parameters; i++) {
        const weft_parameter *p = &declared->parameters[i];
        const int32_t slot = slots->gradients != NULL ? slots->gradients[p->unit] : -1;
        self->gradients[i] = (weft_slot_ref){0};
        if (!p->trainable || slot < 0) continue;
        self->gradients[i] = weft_step_gradient(self, p->unit, slot);
        self->gradients[i].start = weft_f32_bytes(p->offset);
        self->gradients[i].ref = weft_ref_at(self->gradients[i].ref, self->gradients[i].start);
        self->gradients[i].bytes -= self->gradients[i].start;
    }
}

/* Loads the instruction's micro-batch, finds the graph of its segment and binds the slots; in-flight exchanges are
 * driven between the segment's calls. out is valid until the next call. */
static weft_status bind_instruction(weft_stepper *self, weft_graph_binding *out, const weft_graph **graph,
                                    const weft_instruction *instruction, const weft_instruction_slots *slots,
                                    weft_error *err) {
    const weft_engine *engine = self->engine;
    const int32_t m = instruction->micro_batch;
    const weft_slot_ref micro_batch = weft_step_slot(self, slots->micro_batch);
    weft_status status = weft_step_load_micro_batch(self, m, micro_batch, err);
    if (status != WEFT_OK) return status;
    *graph = weft_graph_set_at(self->mode_plan->graphs, self->micro_batch.length, instruction->segment);
    if (*graph == NULL)
        return weft_error_set(err, WEFT_E_HOST, "no graph was made for micro-batches of %d positions",
                              self->micro_batch.length);
    bind_gradients(self, slots);
    *out = (weft_graph_binding){.parameters = engine->compute_refs,
                                .dtypes = engine->compute_dtypes,
                                .tables = engine->tables,
                                .carry_in = weft_step_slot(self, slots->carry_in),
                                .carry_out = weft_step_slot(self, slots->carry_out),
                                .d_carry_out = weft_step_slot(self, slots->d_carry_out),
                                .d_carry_in = weft_step_slot(self, slots->d_carry_in),
                                .tape = weft_step_slot(self, slots->tape),
                                .work = weft_step_slot(self, slots->work),
                                .loss = weft_ref_at(engine->scalars.losses,
                                                    weft_f64_bytes(self->mode_plan->losses[m].position)),
                                .seed = {.ref = engine->scalars.seed, .bytes = weft_dtype_bytes(WEFT_F32)},
                                .gradients = self->gradients,
                                .sink = self->sink};
    weft_micro_batch_bind(out, micro_batch, self->micro_batch.rows, self->micro_batch.length);
    if (self->mode_plan == &engine->plan.train && engine->plan.draws) {
        out->first.bytes = weft_dtype_bytes(WEFT_I64);
        out->first.ref = weft_ref_at(engine->scalars.first, out->first.bytes * m);
    }
    if (self->n_in_flight > 0 && engine->ranks.plugin->poke != NULL) {
        out->between = weft_communication_poke;
        out->between_context = self;
    }
    return self->sink != NULL ? weft_stream_sync_finish(&self->order, err) : WEFT_OK; /* the upload is not timed */
}

/* Reports the bytes that the instruction touched to the trace. */
static void report_slots(const weft_stepper *self, const weft_instruction_slots *slots) {
    const int32_t all[] = {slots->micro_batch, slots->carry_in,    slots->carry_out, slots->tape,
                           slots->work,        slots->d_carry_out, slots->d_carry_in};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] >= 0) weft_trace_use(self->trace, all[i], self->used[all[i]]);
    for (int32_t u = 0; slots->gradients != NULL && u < self->engine->plan.layout->n_units; u++)
        if (slots->gradients[u] >= 0) weft_trace_use(self->trace, slots->gradients[u], self->used[slots->gradients[u]]);
}

/* Also RECOMPUTE, which repeats a forward for its tape. */
static weft_status on_forward(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                              weft_error *err) {
    weft_stepper *self = context;
    const bool repeats = instruction->kind == WEFT_INSTRUCTION_RECOMPUTE;
    weft_graph_binding binding;
    const weft_graph *graph = NULL;
    weft_status status = bind_instruction(self, &binding, &graph, instruction, slots, err);
    if (status == WEFT_OK) status = weft_graph_forward(graph, &binding, repeats, err);
    report_slots(self, slots);
    if (status != WEFT_OK || repeats) return status;
    if (self->find_culprit) status = weft_nonfinite_check(self, instruction, &binding, err);
    if (status == WEFT_OK && self->hidden != NULL && self->step == 0)
        status = weft_hidden_add(self->hidden, self, instruction, graph, &binding, err);
    return status == WEFT_OK ? weft_values_forward(self, instruction, &binding, err) : status;
}

static weft_status on_backward(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                               weft_error *err) {
    weft_stepper *self = context;
    const weft_layout *layout = self->engine->plan.layout;
    weft_graph_binding binding;
    const weft_graph *graph = NULL;
    weft_status status = bind_instruction(self, &binding, &graph, instruction, slots, err);
    if (status == WEFT_OK) status = weft_graph_backward(graph, &binding, err);
    for (int32_t u = 0; u < layout->n_units; u++) /* REDUCE reads the padding too */
        if (slots->gradients[u] >= 0)
            weft_trace_use(self->trace, slots->gradients[u], weft_f32_bytes(weft_layout_trained(layout, u)->numel));
    report_slots(self, slots);
    return status == WEFT_OK ? weft_values_backward(self, instruction, &binding, err) : status;
}

/* ---- NORM, with the same bits for every sharding
 *
 * The sum of a tensor's squares is a tree over its grid cells (weft_square_sum). If the gradient is sharded, each rank
 * sums its own cells, the ranks all-gather the cells' sums, and every rank adds them by the same tree. The losses of
 * the micro-batches are gathered with them. ---- */

/* Computes the sums of one table: of its extents, or of their cells. work: the slot of the workspace. */
static weft_status sum_table(weft_stepper *self, int which, weft_ref x, weft_ref out, int64_t cell, int32_t work,
                             weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_norm_table *table = &engine->norm_tables[which];
    const int32_t dtype = which == WEFT_NORM_NODES ? WEFT_F64 : WEFT_F32;
    weft_square_sum args = {.struct_size = (uint32_t)sizeof args, .x = x, .out = out, .dtype = dtype, .cell = cell};
    weft_status status = WEFT_OK;
    if (table->n == 0) return WEFT_OK;
    args.n = table->elements;
    args.n_extents = table->n;
    args.extent_stride = (uint32_t)sizeof(weft_extent);
    args.extents = weft_ref_at(engine->extents.ref, table->first * (int64_t)sizeof(weft_extent));
    args.workspace = weft_step_slot(self, work).ref;
    if (work >= 0) weft_trace_use(self->trace, work, engine->kernels->square_sum_workspace(engine->device, &args));
    WEFT_PLUGIN_CALL(status, engine->kernels, square_sum, err, engine->device, NULL, &args);
    return status;
}

static weft_status exchange_numbers(weft_stepper *self, const weft_norm_exchange *x, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_ranks *ranks = &engine->ranks;
    const weft_scalars *scalars = &engine->scalars;
    const bool losses = x->goes == WEFT_NORM_GOES_LOSSES, cells = x->goes == WEFT_NORM_GOES_CELLS;
    const int64_t f64 = weft_dtype_bytes(WEFT_F64);
    weft_transfer transfer = {.group = cells ? weft_ranks_group_of(ranks, &x->cut, WEFT_SCOPE_ALL) : ranks->everyone,
                              .to = losses ? scalars->all_losses : weft_ref_at(scalars->nodes, f64 * x->first),
                              .from = scalars->losses,
                              .n = x->n,
                              .dtype = WEFT_F64,
                              .traffic = losses ? WEFT_TRAFFIC_LOSSES : WEFT_TRAFFIC_NORM};
    if (x->cut.replicas == 1) return WEFT_OK;
    if (!losses)
        transfer.from = weft_ref_at(transfer.to, f64 * x->n * weft_scope_place(&x->cut, WEFT_SCOPE_ALL, ranks->rank));
    return weft_ranks_exchange(ranks, ranks->plugin->all_gather, "all_gather", &transfer, err);
}

weft_status weft_step_gather_losses(weft_stepper *self, weft_error *err) {
    const int32_t world = self->engine->ranks.world;
    const weft_norm_exchange losses = {
        .goes = WEFT_NORM_GOES_LOSSES, .group = -1, .cut = {world, world, 1}, .n = self->mode_plan->most_losses};
    return exchange_numbers(self, &losses, err);
}

static weft_status on_norm(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                           weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    const weft_scalars *scalars = &engine->scalars;
    const weft_ref sums = scalars->square_sums;
    weft_clip clip = {.struct_size = (uint32_t)sizeof clip,
                      .square_sums = scalars->square_sums,
                      .count = scalars->count,
                      .norm = scalars->norm,
                      .coefficient = scalars->coefficient,
                      .skip = scalars->skip,
                      .n = weft_budget_trained(&engine->plan),
                      .clip = self->clip};
    weft_norm_exchange walk = {0};
    weft_status status = sum_table(self, WEFT_NORM_OWN_CELLS, engine->gradients.ref, scalars->nodes,
                                   engine->plan.layout->grid, slots->work, err);
    if (status == WEFT_OK)
        status = sum_table(self, WEFT_NORM_OWNED, engine->gradients.ref, scalars->nodes, 0, slots->work, err);
    while (status == WEFT_OK && weft_norm_exchange_next(&engine->plan, &walk))
        status = exchange_numbers(self, &walk, err);
    if (status == WEFT_OK) status = sum_table(self, WEFT_NORM_NODES, scalars->nodes, sums, 0, slots->work, err);
    if (status == WEFT_OK) status = sum_table(self, WEFT_NORM_WHOLE, engine->gradients.ref, sums, 0, slots->work, err);
    if (weft_plan_scales(&engine->plan)) clip.seed = scalars->seed;
    if (status == WEFT_OK) WEFT_PLUGIN_CALL(status, engine->kernels, clip, err, engine->device, NULL, &clip);
    return status == WEFT_OK ? weft_values_norm(self, instruction, err) : status;
}

/* The device runs the optimizer's body: crash reports and slow-call warnings name both plugins. */
static weft_status update_groups(const weft_engine *engine, weft_error *err) {
    static char slot[760];
    char title[700];
    weft_call_record before;
    weft_update args = {.struct_size = (uint32_t)sizeof args,
                        .hp = engine->scalars.hp,
                        .coefficient = engine->scalars.coefficient,
                        .skip = engine->scalars.skip,
                        .regions = engine->regions,
                        .n_regions = engine->n_regions,
                        .region_stride = (uint32_t)sizeof *engine->regions};
    if (args.n_regions == 0) return WEFT_OK;
    WEFT_PLUGIN_QUERY(args.kernel, engine->optimizer_plugin, update, engine->optimizer);
    weft_plugin_title(title, sizeof title, engine->optimizer_plugin);
    (void)snprintf(slot, sizeof slot, "update of %s", title);
    before = weft_plugin_enter(engine->kernels, slot);
    return weft_plugin_leave(before, engine->kernels->update(engine->device, NULL, &args, err), err);
}

static weft_status on_step(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                           weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    weft_status status = WEFT_OK;
    (void)slots;
    if (self->count == 0) return WEFT_OK;
    status = prepare_update(self, err);
    if (status == WEFT_OK)
        status = weft_stream_sync_upload(&self->order, engine->scalars.hp, self->hp, engine->plan.hp_bytes, NULL, err);
    if (status == WEFT_OK) status = update_groups(engine, err);
    return status == WEFT_OK ? weft_values_step(self, instruction, err) : status;
}

/* Opens the instruction's range and reports it to the heartbeat; of a WAIT the instruction that it waits for. Without
 * ranges or a watchdog only its kind, which costs nothing, for this process's slow-call warning. */
static void begin_instruction(void *context, int32_t index) {
    const weft_stepper *self = context;
    const weft_program *program = self->mode_plan->program;
    const weft_instruction *instruction = &program->instructions[index];
    char text[WEFT_HEARTBEAT_TEXT] = "";
    int n = 0;
    if (self->ranges == NULL && !weft_heartbeat_is_watched()) {
        weft_heartbeat_instruction(self->step, index, weft_instruction_kind_name(instruction->kind));
        return;
    }
    if (instruction->kind == WEFT_INSTRUCTION_WAIT) {
        n = snprintf(text, sizeof text, "WAIT for instruction %d, ", (int)instruction->waits);
        instruction = &program->instructions[instruction->waits];
    }
    weft_instruction_describe(text + n, sizeof text - (size_t)n, instruction, &self->mode_plan->job->spec);
    weft_heartbeat_instruction(self->step, index, text);
    if (self->ranges != NULL) self->ranges->begin(self->engine->device, text);
}

weft_status weft_step_run_part(weft_stepper *self, int32_t first, int32_t end, weft_error *err) {
    const weft_mode_plan *mode_plan = self->mode_plan;
    weft_exec_table table = {.context = self,
                             .begin = begin_instruction,
                             .end = end_instruction,
                             .run = {[WEFT_INSTRUCTION_COUNT] = on_count,
                                     [WEFT_INSTRUCTION_FORWARD] = on_forward,
                                     [WEFT_INSTRUCTION_RECOMPUTE] = on_forward,
                                     [WEFT_INSTRUCTION_BACKWARD] = on_backward,
                                     [WEFT_INSTRUCTION_NORM] = on_norm,
                                     [WEFT_INSTRUCTION_STEP] = on_step}};
    weft_status status = WEFT_OK;
    weft_communication_table(&table);
    self->loaded_micro_batch = -1;
    memset(self->used, 0, (size_t)mode_plan->program->n_slots * sizeof *self->used);
    weft_communication_begin(self, first);
    status = weft_program_execute(mode_plan->program, first, end, &mode_plan->job->spec, &table, self->trace,
                                  self->step, err);
    if (status == WEFT_OK) weft_heartbeat_rest();
    else self->engine->failed = true;
    return status;
}
