/* host/run/run_instructions.c: see run_instructions.h. One function per instruction kind. */
#include "run/run_instructions.h"

#include "run/compute.h"
#include "launch/heartbeat.h"
#include "program/budget.h"
#include "plugin/enter.h"
#include "run/bind.h"
#include "run/nonfinite.h"
#include "run/in_flight.h"
#include "run/hidden.h"
#include "run/micro_batch.h"
#include "run/norm.h"
#include "run/communication.h"
#include "run/values.h"

enum { HP_GUARD = 0xA5 };

/* For the next update, with the step's learning rate. */
static weft_status prepare_update(weft_stepper *self, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_step_info info = {(uint32_t)sizeof info, 0, engine->updates + 1, self->lr};
    const size_t n = (size_t)engine->plan.hp_bytes;
    unsigned char *guard = (unsigned char *)self->hp + n; /* behind what the optimizer says that it writes */
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

/* What a model that drops elements draws by. */
static void put_first_rows(weft_stepper *self) {
    const int64_t n = weft_budget_first_rows(&self->engine->plan) / weft_dtype_bytes(WEFT_I64);
    for (int64_t m = 0; m < n && self->step > 0; m++)
        self->first_out[m] = (int64_t)self->first_row + m * self->mode_plan->graphs->rows;
}

weft_status weft_step_send_first_rows(weft_stepper *self, weft_error *err) {
    const int64_t bytes = weft_budget_first_rows(&self->engine->plan);
    if (bytes == 0) return WEFT_OK;
    put_first_rows(self);
    return weft_stream_sync_send(&self->order, self->engine->scalars.first, self->first_out, bytes, NULL, err);
}

/* COUNT, and behind it what losses are multiplied by. */
static void put_count(const weft_stepper *self) {
    const weft_engine *engine = self->engine;
    float *seed = (float *)(void *)(self->count_out + 1);
    *self->count_out = (double)self->count;
    *seed = weft_plan_scales(&engine->plan) && self->count > 0 ? weft_loss_scale_seed(&engine->scale, self->count)
                                                               : 1.0f;
}

weft_status weft_step_put_numbers(weft_stepper *self, weft_error *err) {
    put_count(self);
    put_first_rows(self);
    return self->step > 0 ? prepare_update(self, err) : WEFT_OK;
}

static weft_status on_count(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                            weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    (void)instruction;
    (void)slots;
    put_count(self);
    return weft_stream_sync_send(&self->order, engine->scalars.count, self->count_out,
                                 weft_dtype_bytes(WEFT_F64) + weft_dtype_bytes(WEFT_F32), NULL, err);
}

/* Where each instruction is timed, what it has queued is no other one's: a device that queues is waited for. */
static weft_status settle(void *context, weft_error *err) {
    const weft_stepper *self = context;
    return weft_stream_sync_finish(&self->order, err);
}

/* Between the calls of a segment exchanges that are under way are driven. A micro-batch on its way to the device is
 * no part of the segment's first call. */
static weft_status bind_instruction(weft_stepper *self, weft_graph_binding *out, const weft_graph **graph,
                                    const weft_instruction *instruction, const weft_instruction_slots *slots,
                                    weft_error *err) {
    weft_status status = weft_step_bind(self, out, graph, instruction, slots, err);
    if (status == WEFT_OK && self->sink != NULL) status = settle(self, err);
    if (status != WEFT_OK || !weft_in_flight_under_way(self)) return status;
    out->between = weft_in_flight_poke;
    out->between_context = self;
    return WEFT_OK;
}

static weft_status on_forward(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                              weft_error *err) {
    weft_stepper *self = context;
    weft_graph_binding binding;
    const weft_graph *graph = NULL;
    weft_status status = bind_instruction(self, &binding, &graph, instruction, slots, err);
    if (status == WEFT_OK) status = weft_graph_forward(graph, &binding, false, err);
    weft_step_report(self, slots);
    if (status == WEFT_OK && self->find_culprit) status = weft_nonfinite_look(self, instruction, &binding, err);
    if (status == WEFT_OK && self->hidden != NULL && self->step == 0)
        status = weft_hidden_add(self->hidden, self, instruction, graph, &binding, err);
    if (status == WEFT_OK) status = weft_values_forward(self, instruction, &binding, err);
    return status;
}

static weft_status on_recompute(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                                weft_error *err) {
    weft_stepper *self = context;
    weft_graph_binding binding;
    const weft_graph *graph = NULL;
    weft_status status = bind_instruction(self, &binding, &graph, instruction, slots, err);
    if (status == WEFT_OK) status = weft_graph_forward(graph, &binding, true, err);
    weft_step_report(self, slots);
    return status;
}

static weft_status on_backward(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                               weft_error *err) {
    weft_stepper *self = context;
    weft_graph_binding binding;
    const weft_graph *graph = NULL;
    weft_status status = bind_instruction(self, &binding, &graph, instruction, slots, err);
    if (status == WEFT_OK) status = weft_graph_backward(graph, &binding, err);
    weft_step_claim_gradients(self, slots);
    weft_step_report(self, slots);
    if (status == WEFT_OK) status = weft_values_backward(self, instruction, &binding, err);
    return status;
}

static weft_status on_norm(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                           weft_error *err) {
    weft_stepper *self = context;
    const weft_status status = weft_norm_run(self, weft_step_slot(self, slots->work), slots->work, err);
    return status == WEFT_OK ? weft_values_norm(self, instruction, err) : status;
}

/* The device runs the optimizer's body: of a crash, and of a call that lasts, both are named. */
static weft_status run_update(const weft_engine *engine, const weft_update *args, weft_error *err) {
    static char slot[760];
    char title[700];
    weft_doing before;
    weft_plugin_title(title, sizeof title, engine->optimizer_plugin);
    (void)snprintf(slot, sizeof slot, "update of %s", title);
    before = weft_plugin_enter(engine->kernels, slot);
    return weft_plugin_leave(before, engine->kernels->update(engine->device, NULL, args, err), err);
}

static weft_status update_groups(const weft_engine *engine, weft_error *err) {
    weft_update args = {.struct_size = (uint32_t)sizeof args,
                        .hp = engine->scalars.hp,
                        .coefficient = engine->scalars.coefficient,
                        .skip = engine->scalars.skip,
                        .regions = engine->regions,
                        .n_regions = engine->n_regions,
                        .region_stride = (uint32_t)sizeof *engine->regions};
    if (args.n_regions == 0) return WEFT_OK;
    WEFT_PLUGIN_ASK(args.kernel, engine->optimizer_plugin, update, engine->optimizer);
    return run_update(engine, &args, err);
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
        status = weft_stream_sync_send(&self->order, engine->scalars.hp, self->hp, engine->plan.hp_bytes, NULL, err);
    if (status == WEFT_OK) status = update_groups(engine, err);
    if (status == WEFT_OK && engine->ranks.world == 1) status = weft_compute_copy_refresh(engine, true, err);
    return status == WEFT_OK ? weft_values_step(self, instruction, err) : status;
}

/* For the watcher; of a WAIT it is told what is waited for. */
static void tell_watcher(void *context, int32_t index) {
    const weft_stepper *self = context;
    const weft_program *program = self->mode_plan->program;
    const weft_instruction *instruction = &program->instructions[index];
    char text[WEFT_HEARTBEAT_TEXT] = "";
    int n = 0;
    if (instruction->kind == WEFT_INSTRUCTION_WAIT) {
        n = snprintf(text, sizeof text, "WAIT for instruction %d, ", (int)instruction->waits);
        instruction = &program->instructions[instruction->waits];
    }
    weft_instruction_describe(text + n, sizeof text - (size_t)n, instruction, &self->mode_plan->job->spec);
    weft_heartbeat_instruction(self->step, index, text);
}

/* Without one what is told is told by this process alone, if a call lasts: its kind is enough, and costs nothing. */
static void tell_nobody(void *context, int32_t index) {
    const weft_stepper *self = context;
    weft_heartbeat_instruction(self->step, index,
                               weft_instruction_kind_name(self->mode_plan->program->instructions[index].kind));
}

static weft_exec_table exec_table(weft_stepper *self) {
    weft_exec_table table = {.context = self, .begin = weft_heartbeat_is_watched() ? tell_watcher : tell_nobody};
    table.run[WEFT_INSTRUCTION_COUNT] = on_count;
    table.run[WEFT_INSTRUCTION_FORWARD] = on_forward;
    table.run[WEFT_INSTRUCTION_RECOMPUTE] = on_recompute;
    table.run[WEFT_INSTRUCTION_BACKWARD] = on_backward;
    table.run[WEFT_INSTRUCTION_NORM] = on_norm;
    table.run[WEFT_INSTRUCTION_STEP] = on_step;
    weft_communication_table(&table);
    if (self->sink != NULL) table.settle = settle;
    return table;
}

weft_status weft_step_run_part(weft_stepper *self, int32_t first, int32_t end, weft_error *err) {
    const weft_mode_plan *mode_plan = self->mode_plan;
    const weft_exec_table table = exec_table(self);
    weft_status status = WEFT_OK;
    self->micro_batch_now = -1;
    memset(self->used, 0, (size_t)mode_plan->program->n_slots * sizeof *self->used);
    weft_in_flight_begin(self);
    weft_communication_pass_over(self, first);
    status = weft_program_execute_part(mode_plan->program, first, end, &mode_plan->job->spec, &table, self->trace,
                                       self->step, err);
    if (status == WEFT_OK) weft_heartbeat_rest();
    else self->engine->failed = true;
    return status;
}

weft_status weft_step_run_instructions(weft_stepper *self, weft_error *err) {
    return weft_step_run_part(self, 0, self->mode_plan->program->n_instructions, err);
}
