/* host/run/communication.c: see communication.h. */
#include "run/communication.h"

#include "plugin/enter.h"
#include "program/job.h"
#include "run/bind.h"
#include "run/in_flight.h"
#include "run/gather.h"

#include <stdlib.h>

static weft_status on_release(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                              weft_error *err) {
    (void)err;
    if (slots->unit >= 0) weft_gather_forget(context, instruction);
    return WEFT_OK;
}

static weft_planned_exchange planned_of(const weft_stepper *self, const weft_instruction *instruction) {
    return weft_exchange_plan(&self->engine->plan, &self->mode_plan->job->spec, instruction, self->engine->ranks.rank);
}

/* An instruction that is one exchange and nothing else. */
static weft_status set_out_alone(weft_stepper *self, const weft_instruction *instruction, int32_t way,
                                 weft_transfer *what, weft_error *err) {
    const weft_status status = weft_in_flight_depart(self, instruction, &what->stream, err);
    return status == WEFT_OK ? weft_in_flight_set_out(self, instruction, 0, way, what, err) : status;
}

/* In place: every rank has its own row where the others' arrive, from the start of its part of a region on. */
static weft_status gather_in_place(weft_stepper *self, const weft_instruction *instruction, weft_ref region, int what,
                                   weft_error *err) {
    const weft_plan *plan = &self->engine->plan;
    const weft_planned_exchange planned = planned_of(self, instruction);
    weft_transfer transfer = weft_in_flight_transfer(self, &planned);
    if (planned.way == WEFT_EXCHANGE_NONE) return WEFT_OK;
    transfer.to = weft_ref_at(region, plan->holds[what]->spans[plan->layout->units[instruction->unit].trained].at);
    transfer.from = weft_ref_at(transfer.to, planned.each * planned.place);
    return set_out_alone(self, instruction, planned.way, &transfer, err);
}

static weft_status on_gather(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                             weft_error *err) {
    weft_stepper *self = context;
    if (instruction->what == WEFT_PAYLOAD_SUM)
        return gather_in_place(self, instruction, self->engine->gradients.ref, WEFT_HOLD_GRADIENTS, err);
    return weft_gather_start(self, instruction, slots->unit, err);
}

static weft_status finish_gather(void *context, const weft_instruction *instruction,
                                 const weft_instruction_slots *slots, weft_error *err) {
    const weft_status status = weft_in_flight_finish(context, instruction, slots, err);
    return status == WEFT_OK ? weft_gather_finish(context, instruction, slots->unit, err) : status;
}

/* ---- sums ---- */

/* An exchange's slot: what is given in another type, what comes, and one row of it widened. */
typedef struct exchange_view {
    weft_reduce_rows rows;
    weft_ref give, come, wide;
} exchange_view;

static exchange_view view_exchange(const weft_stepper *self, const weft_instruction *instruction,
                                   const weft_instruction_slots *slots) {
    exchange_view v = {.rows = weft_exchange_reduce(&self->engine->plan, &self->mode_plan->job->spec, instruction->unit,
                                                    instruction->scope, instruction->micro_batch >= 0)};
    if (slots->exchange < 0) return v;
    v.give = weft_step_slot(self, slots->exchange).ref;
    v.come = weft_ref_at(v.give, v.rows.come);
    v.wide = weft_ref_at(v.give, v.rows.wide);
    return v;
}

static weft_status convert_elements(const weft_stepper *self, weft_stream *stream, weft_ref to, int32_t dtype_to,
                                    weft_ref from, int32_t dtype_from, int64_t n, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->engine->kernels, convert, err, self->engine->device, stream, to, dtype_to, from,
                     dtype_from, n);
    return status;
}

/* The sum in slot `index` of a hop. */
static weft_ref sum_at(const weft_stepper *self, const weft_instruction *instruction, int hop, int32_t index) {
    const weft_engine *engine = self->engine;
    const weft_unit_sum *sum = &self->mode_plan->sums[instruction->unit];
    const bool last = hop == (sum->two_hops ? 1 : 0);
    if (last && index == 0)
        return weft_sum_ref(engine, &self->mode_plan->job->spec, instruction->unit, instruction->scope);
    return weft_ref_at(engine->partials.ref,
                       weft_f32_bytes(sum->partials[hop] + sum->length[hop] * (index - (last ? 1 : 0))));
}

/* What a REDUCE gives: the micro-batch's gradient, or what the first hop has come to. */
static weft_ref source_of(const weft_stepper *self, const weft_instruction *instruction,
                          const weft_instruction_slots *slots) {
    if (instruction->micro_batch < 0) return sum_at(self, instruction, 0, 0);
    return weft_step_gradient(self, instruction->unit, slots->gradients[instruction->unit]).ref;
}

/* Rounded before it goes; where it stays, there and back. */
static weft_status narrow_source(const weft_stepper *self, const exchange_view *v, weft_stream *stream, weft_ref *from,
                                 weft_error *err) {
    weft_status status = WEFT_OK;
    if (v->rows.dtype == WEFT_F32) return WEFT_OK;
    status = convert_elements(self, stream, v->give, v->rows.dtype, *from, WEFT_F32, v->rows.whole, err);
    if (status == WEFT_OK && v->rows.ranks == 1)
        status = convert_elements(self, stream, *from, WEFT_F32, v->give, v->rows.dtype, v->rows.whole, err);
    *from = v->give;
    return status;
}

static weft_status on_reduce(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                             weft_error *err) {
    weft_stepper *self = context;
    const exchange_view v = view_exchange(self, instruction, slots);
    const weft_planned_exchange planned = planned_of(self, instruction);
    weft_transfer transfer = weft_in_flight_transfer(self, &planned);
    weft_status status = WEFT_OK;
    transfer.from = source_of(self, instruction, slots);
    transfer.to = v.come;
    if (instruction->micro_batch >= 0)
        weft_trace_use(self->trace, slots->gradients[instruction->unit], weft_f32_bytes(v.rows.whole));
    if (slots->exchange >= 0)
        weft_trace_use(self->trace, slots->exchange, self->mode_plan->program->slots[slots->exchange].bytes);
    if (planned.way == WEFT_EXCHANGE_NONE)
        return narrow_source(self, &v, NULL, &transfer.from, err); /* nothing travels: queue 0 does it */
    status = weft_in_flight_depart(self, instruction, &transfer.stream, err);
    if (status == WEFT_OK) status = narrow_source(self, &v, transfer.stream, &transfer.from, err);
    return status == WEFT_OK ? weft_in_flight_set_out(self, instruction, 0, planned.way, &transfer, err) : status;
}

static weft_status add_elements(const weft_stepper *self, weft_ref to, weft_ref a, weft_ref b, int64_t n,
                                weft_error *err) {
    const weft_add args = {.struct_size = (uint32_t)sizeof args, .a = a, .b = b, .y = to, .n = n, .dtype = WEFT_F32};
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->engine->kernels, add, err, self->engine->device, NULL, &args);
    return status;
}

/* A row that became the sum on top and is not copied yet: it may be added to the next one where it lies. */
typedef struct fresh_row {
    weft_ref ref;
    int32_t slot; /* of the sum; -1: none */
} fresh_row;

static weft_status settle_fresh_row(const weft_stepper *self, const weft_instruction *instruction, fresh_row *fresh,
                                    int64_t n, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_ref from = fresh->ref;
    weft_ref to = {NULL, 0};
    weft_status status = WEFT_OK;
    if (fresh->slot < 0) return WEFT_OK;
    to = sum_at(self, instruction, instruction->micro_batch < 0 ? 1 : 0, fresh->slot);
    fresh->slot = -1;
    if (to.buffer == from.buffer && to.offset == from.offset) return WEFT_OK; /* the only micro-batch: it is the sum */
    WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, to, from, weft_f32_bytes(n));
    return status;
}

/* A term joins the sums of its hop. */
static weft_status join_term(weft_stepper *self, const weft_instruction *instruction, fresh_row *fresh, weft_ref row,
                             int64_t n, const weft_term *term, weft_error *err) {
    const int hop = instruction->micro_batch < 0 ? 1 : 0;
    weft_fold *fold = weft_in_flight_fold(self, instruction->unit, hop);
    const weft_fold_step step = weft_fold_push(fold, term->lo, term->hi);
    const weft_ref to = sum_at(self, instruction, hop, step.slot);
    const bool joins_fresh = step.add && fresh->slot == step.slot;
    const weft_ref sum = joins_fresh ? fresh->ref : to;
    weft_status status = WEFT_OK;
    if (joins_fresh) fresh->slot = -1;
    else status = settle_fresh_row(self, instruction, fresh, n, err);
    if (status == WEFT_OK && step.add) status = add_elements(self, to, sum, row, n, err);
    if (!step.add) *fresh = (fresh_row){row, step.slot};
    for (int32_t i = 0; i < step.merges && status == WEFT_OK; i++) {
        const int32_t last = fold->top + step.merges - 1 - i;
        const weft_ref below = sum_at(self, instruction, hop, last - 1);
        status = add_elements(self, below, below, sum_at(self, instruction, hop, last), n, err);
    }
    return status;
}

/* Of a REDUCE's rows, those that are added here: the library has added up all of them where the order is open. */
static int32_t rows_to_add(const weft_stepper *self, int32_t index, int32_t ranks) {
    const bool fast = self->mode_plan->job->spec.view.reduce == WEFT_REDUCE_FAST;
    const int32_t n = self->mode_plan->terms->n[index];
    return fast && ranks > 1 && n > 1 ? 1 : n;
}

/* Row by row, in the order of the micro-batches. */
static weft_status finish_reduce(void *context, const weft_instruction *instruction,
                                 const weft_instruction_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const weft_terms *terms = self->mode_plan->terms;
    const int32_t index = (int32_t)(instruction - self->mode_plan->program->instructions);
    const weft_term *rows = &terms->terms[terms->first[index]];
    const exchange_view v = view_exchange(self, instruction, slots);
    const bool fast = self->mode_plan->job->spec.view.reduce == WEFT_REDUCE_FAST;
    const int64_t bytes = weft_dtype_span(v.rows.dtype, v.rows.row), n = v.rows.row;
    fresh_row fresh = {{NULL, 0}, -1};
    weft_status status = weft_in_flight_finish(context, instruction, slots, err);
    for (int32_t i = 0; i < rows_to_add(self, index, v.rows.ranks) && status == WEFT_OK; i++) {
        weft_ref row = v.rows.ranks == 1 ? source_of(self, instruction, slots)
                                         : weft_ref_at(v.come, bytes * (fast ? 0 : rows[i].row));
        if (v.rows.ranks > 1 && v.rows.dtype != WEFT_F32) {
            status = convert_elements(self, NULL, v.wide, WEFT_F32, row, v.rows.dtype, n, err);
            row = v.wide;
        }
        if (status == WEFT_OK) status = join_term(self, instruction, &fresh, row, n, &rows[i], err);
        if (status == WEFT_OK && v.rows.dtype != WEFT_F32)
            status = settle_fresh_row(self, instruction, &fresh, n, err); /* `wide` is one */
    }
    return status == WEFT_OK ? settle_fresh_row(self, instruction, &fresh, n, err) : status;
}

/* The sums of its unit stand as they do when it has ended. */
static void pass_over_reduce(weft_stepper *self, int32_t index) {
    const weft_instruction *instruction = &self->mode_plan->program->instructions[index];
    const weft_terms *terms = self->mode_plan->terms;
    const int32_t ranks = weft_exchange_reduce(&self->engine->plan, &self->mode_plan->job->spec, instruction->unit,
                                               instruction->scope, instruction->micro_batch >= 0)
                              .ranks;
    weft_fold *fold = weft_in_flight_fold(self, instruction->unit, instruction->micro_batch < 0 ? 1 : 0);
    for (int32_t i = 0; i < rows_to_add(self, index, ranks); i++) {
        const weft_term *term = &terms->terms[terms->first[index] + i];
        (void)weft_fold_push(fold, term->lo, term->hi);
    }
}

void weft_communication_pass_over(weft_stepper *self, int32_t first) {
    const weft_program *program = self->mode_plan->program;
    for (int32_t i = 0; i < first; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        const int32_t ends = instruction->kind == WEFT_INSTRUCTION_WAIT ? instruction->waits
                             : instruction->queue == 0                  ? i
                                                                        : -1;
        if (ends >= 0 && program->instructions[ends].kind == WEFT_INSTRUCTION_REDUCE) pass_over_reduce(self, ends);
    }
}

/* ---- copies that STEP left stale ---- */

/* What travels between two ranks by itself, by sorts; each has a lane, and its tags tell its messages apart. */
enum { TAG_REFRESH = WEFT_PAYLOAD_MICRO_BATCH_GRADIENT + 1, N_SORTS = TAG_REFRESH - WEFT_PAYLOAD_CARRY + 1 };
_Static_assert(N_SORTS <= WEFT_COMM_LANES, "a lane for each sort of message");

int32_t weft_communication_lane(const weft_instruction *instruction) {
    return (instruction->kind == WEFT_INSTRUCTION_REFRESH ? TAG_REFRESH : instruction->what) - WEFT_PAYLOAD_CARRY;
}

/* Messages of one sort and micro-batch never meet another's; where there are more than tags, those of far
 * micro-batches share one. */
static void address(weft_transfer *out, const weft_engine *engine, const weft_instruction *instruction, int32_t of,
                    int32_t micro_batch) {
    const int64_t units = engine->plan.layout->n_units, segments = engine->plan.declared->n_segments;
    const int64_t things = units > segments ? units : segments;
    const int32_t lane = weft_communication_lane(instruction);
    const int64_t tag = ((int64_t)micro_batch * N_SORTS + lane) * things + of;
    out->tag = (int32_t)(tag % ((int64_t)engine->ranks.info.max_tag + 1));
    out->lane = lane;
}

/* The trained part of an owned unit, from its owner to the rank that has a copy. */
static weft_status send_copy(weft_stepper *self, const weft_instruction *instruction, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_planned_exchange planned = planned_of(self, instruction);
    const int32_t index = engine->plan.layout->units[instruction->unit].trained;
    weft_transfer transfer = weft_in_flight_transfer(self, &planned);
    if (planned.way == WEFT_EXCHANGE_NONE) return WEFT_OK;
    address(&transfer, engine, instruction, instruction->unit, 0);
    transfer.from = transfer.to =
        weft_ref_at(engine->parameters.ref, engine->plan.holds[WEFT_HOLD_PARAMETERS]->spans[index].at);
    return set_out_alone(self, instruction, planned.way, &transfer, err);
}

static weft_status on_refresh(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                              weft_error *err) {
    weft_stepper *self = context;
    (void)slots;
    if (self->mode_plan->job->spec.view.placements[instruction->unit].parameters == WEFT_OWNED)
        return send_copy(self, instruction, err);
    return gather_in_place(self, instruction, self->engine->parameters.ref, WEFT_HOLD_PARAMETERS, err);
}

/* ---- from rank to rank ---- */

/* Bytes of a carry: both sides know the micro-batch's shape, which may be smaller than what was planned for. */
static int64_t carry_bytes(const weft_stepper *self, const weft_instruction *instruction) {
    const weft_graph *graph = weft_graph_set_at(self->mode_plan->graphs,
                                                self->micro_batch_lengths[instruction->micro_batch],
                                                instruction->segment);
    return graph == NULL ? 0 : weft_graph_size(graph)->carry;
}

static weft_status on_transfer(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                               weft_error *err) {
    weft_stepper *self = context;
    const int32_t slot = instruction->what == WEFT_PAYLOAD_CARRY            ? slots->carry_out
                         : instruction->what == WEFT_PAYLOAD_CARRY_GRADIENT ? slots->d_carry_out
                                                                            : slots->gradients[instruction->unit];
    const weft_planned_exchange planned = planned_of(self, instruction);
    weft_transfer transfer = weft_in_flight_transfer(self, &planned);
    transfer.from = transfer.to = instruction->unit >= 0 ? weft_step_gradient(self, instruction->unit, slot).ref
                                                         : weft_step_slot(self, slot).ref;
    if (instruction->unit < 0) transfer.n = carry_bytes(self, instruction);
    address(&transfer, self->engine, instruction, instruction->unit >= 0 ? instruction->unit : instruction->segment,
            instruction->micro_batch);
    weft_trace_use(self->trace, slot, transfer.n);
    return set_out_alone(self, instruction, planned.way, &transfer, err);
}

void weft_communication_table(weft_exec_table *table) {
    table->run[WEFT_INSTRUCTION_GATHER] = on_gather;
    table->finish[WEFT_INSTRUCTION_GATHER] = finish_gather;
    table->run[WEFT_INSTRUCTION_RELEASE] = on_release;
    table->run[WEFT_INSTRUCTION_REDUCE] = on_reduce;
    table->finish[WEFT_INSTRUCTION_REDUCE] = finish_reduce;
    table->run[WEFT_INSTRUCTION_REFRESH] = on_refresh;
    table->finish[WEFT_INSTRUCTION_REFRESH] = weft_in_flight_finish;
    table->run[WEFT_INSTRUCTION_SEND] = table->run[WEFT_INSTRUCTION_RECV] = on_transfer;
    table->finish[WEFT_INSTRUCTION_SEND] = table->finish[WEFT_INSTRUCTION_RECV] = weft_in_flight_finish;
}
