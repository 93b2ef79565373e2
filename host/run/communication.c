/* host/run/communication.c: the instructions that communicate: GATHER and RELEASE of parameters, REDUCE of gradients
 * and GATHER of their sums, REFRESH, SEND and RECV. An exchange is in flight from its instruction to the end of that
 * or to its WAIT. */
#include "base/alloc.h"
#include "plugin/enter.h"
#include "program/exchange.h"
#include "run/stepper.h"

#include <stdlib.h>

weft_slot_ref weft_step_slot(const weft_stepper *self, int32_t index) {
    weft_slot_ref out = weft_engine_slot(self->engine, self->mode_plan->program, index);
    if (index >= 0) out.used = &self->used[index];
    return out;
}

/* The part of the gradients' region that receives the sums of an exchange of this scope. */
static weft_ref sum_ref(const weft_stepper *self, int32_t unit, int32_t scope) {
    const weft_engine *engine = self->engine;
    return weft_ref_at(engine->gradients.ref,
                       weft_sums_target(&engine->plan, &self->mode_plan->job->spec, unit, scope));
}

weft_slot_ref weft_step_gradient(const weft_stepper *self, int32_t unit, int32_t slot) {
    weft_slot_ref out = weft_step_slot(self, slot);
    if (self->mode_plan->program->slots[slot].offset >= 0) return out;
    out.ref = sum_ref(self, unit, WEFT_SCOPE_RANK);
    out.bytes = weft_f32_bytes(weft_layout_trained(self->engine->plan.layout, unit)->numel);
    return out;
}

void weft_communication_poke(void *stepper) {
    const weft_stepper *self = stepper;
    const weft_ranks *ranks = &self->engine->ranks;
    if (ranks->comm != NULL && ranks->plugin->poke != NULL) WEFT_PLUGIN_NOTIFY(ranks->plugin, poke, ranks->comm);
}

static weft_fold *fold_of(const weft_stepper *self, const weft_instruction *instruction) {
    return &self->folds[2 * instruction->unit + (instruction->micro_batch < 0 ? 1 : 0)];
}

static weft_comm_handle **handles_of(const weft_stepper *self, const weft_instruction *instruction) {
    return self->handles[instruction - self->mode_plan->program->instructions];
}

/* Returns the planned exchange of an instruction, and its transfer without to, from, stream and tag. */
static weft_planned_exchange plan_exchange(const weft_stepper *self, weft_transfer *out,
                                           const weft_instruction *instruction) {
    const weft_ranks *ranks = &self->engine->ranks;
    const weft_planned_exchange planned =
        weft_exchange_plan(&self->engine->plan, &self->mode_plan->job->spec, instruction, ranks->rank);
    *out = (weft_transfer){.group = planned.scope == 0 ? ranks->everyone
                                                       : weft_ranks_group_of(ranks, &planned.cut, planned.scope),
                           .n = planned.n,
                           .dtype = planned.dtype,
                           .peer = planned.peer};
    return planned;
}

/* Starts number `which` of an instruction's exchanges, as planned by `way`, in the transfer's stream. */
static weft_status start_exchange(weft_stepper *self, const weft_instruction *instruction, int which, int32_t way,
                                  weft_transfer *transfer, weft_error *err) {
    const weft_comm_plugin *plugin = self->engine->ranks.plugin;
    weft_exchange_fn *function = plugin->recv;
    const char *name = "recv";
    weft_status status = WEFT_OK;
    switch (way) {
    case WEFT_EXCHANGE_ALL_GATHER: function = plugin->all_gather, name = "all_gather"; break;
    case WEFT_EXCHANGE_ALL_TO_ALL: function = plugin->all_to_all, name = "all_to_all"; break;
    case WEFT_EXCHANGE_REDUCE_SCATTER: function = plugin->reduce_scatter, name = "reduce_scatter"; break;
    case WEFT_EXCHANGE_SEND: function = plugin->send, name = "send"; break;
    default: break;
    }
    transfer->traffic = weft_traffic_of(instruction);
    status =
        weft_ranks_start(&self->engine->ranks, &handles_of(self, instruction)[which], function, name, transfer, err);
    self->n_in_flight += status == WEFT_OK;
    return status;
}

/* Starts the only exchange of an instruction. */
static weft_status start_single(weft_stepper *self, const weft_instruction *instruction, int32_t way,
                                weft_transfer *transfer, weft_error *err) {
    const weft_status status = weft_stream_sync_fork(&self->order, &transfer->stream, instruction->queue, err);
    return status == WEFT_OK ? start_exchange(self, instruction, 0, way, transfer, err) : status;
}

/* Joins an instruction's exchanges: queue 0 sees their results. */
static weft_status finish_exchanges(void *context, const weft_instruction *instruction,
                                    const weft_instruction_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    weft_comm_handle **handles = handles_of(self, instruction);
    weft_status status = WEFT_OK;
    (void)slots;
    for (int i = 0; i < WEFT_STEP_EXCHANGES && status == WEFT_OK; i++) {
        self->n_in_flight -= handles[i] != NULL;
        status = weft_ranks_join(&self->engine->ranks, &handles[i], NULL, err);
    }
    return status;
}

/* ---- GATHER of parameters ---- */

/* Rounds this rank's shard into its own row of the image, and copies its gains into their row. */
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
        if (weft_parameter_is_matrix(parameter) || !weft_gathered_share(p, parameter, place, &begin, &end)) continue;
        WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, stream, weft_ref_at(slot, at),
                         weft_ref_at(engine->parameters.ref, weft_span_at(span, parameter->offset + begin)),
                         weft_f32_bytes(end - begin));
        at += weft_f32_bytes(end - begin);
    }
    return status;
}

/* Starts the exchanges of one group: its image, rounded first or straight from the stored parameters, then its gains.
 * Packed blocks are sent as bytes. */
static weft_status start_part(weft_stepper *self, const weft_instruction *instruction, const weft_gathered_part *p,
                              int which, const weft_planned_exchange *planned, const weft_transfer *to,
                              weft_error *err) {
    const weft_engine *engine = self->engine;
    const bool is_plain = weft_dtype_block(p->dtype) == 1;
    const int64_t bytes = weft_dtype_span(p->dtype, p->shard);
    weft_transfer image = {.group = to->group,
                           .stream = to->stream,
                           .to = weft_ref_at(to->to, p->image),
                           .from = weft_ref_at(engine->parameters.ref,
                                               engine->plan.holds[WEFT_HOLD_PARAMETERS]->spans[p->index].at),
                           .n = is_plain ? p->shard : bytes,
                           .dtype = is_plain ? p->dtype : WEFT_U8};
    weft_transfer gains = {.group = to->group,
                           .stream = to->stream,
                           .to = weft_ref_at(to->to, p->rows),
                           .from = weft_ref_at(to->to, p->rows + weft_f32_bytes(p->row) * planned->place),
                           .n = p->row,
                           .dtype = WEFT_F32};
    weft_status status = WEFT_OK;
    if (p->rounded) {
        status = round_shard(self, to->stream, p, to->to, planned->place, err);
        image.from = weft_ref_at(image.to, bytes * planned->place);
    }
    if (status == WEFT_OK) status = start_exchange(self, instruction, which, planned->way, &image, err);
    if (status != WEFT_OK || p->row == 0) return status;
    return start_exchange(self, instruction, which + 1, planned->way, &gains, err);
}

/* Assembles one gain from the rows of its shards. */
static weft_status assemble_gain(const weft_stepper *self, const weft_gathered_part *p, const weft_cut *cut,
                                 weft_ref slot, int32_t member, weft_ref to, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_parameter *parameters = engine->plan.declared->parameters;
    const int32_t *members = p->group->members;
    weft_status status = WEFT_OK;
    for (int64_t j = 0; j < cut->group && status == WEFT_OK; j++) {
        int64_t at = p->rows + weft_f32_bytes(p->row) * j, begin = 0, end = 0;
        for (int32_t i = 0; i < member; i++)
            if (!weft_parameter_is_matrix(&parameters[members[i]]) &&
                weft_gathered_share(p, &parameters[members[i]], j, &begin, &end))
                at += weft_f32_bytes(end - begin);
        if (!weft_gathered_share(p, &parameters[members[member]], j, &begin, &end)) continue;
        WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL,
                         weft_ref_at(to, weft_f32_bytes(begin)), weft_ref_at(slot, at), weft_f32_bytes(end - begin));
    }
    return status;
}

/* Points the segments' parameters of a group into the slot. */
static weft_status bind_members(weft_stepper *self, const weft_gathered_part *p, const weft_cut *cut, weft_ref slot,
                                weft_error *err) {
    weft_engine *engine = self->engine;
    int64_t gains = p->gains;
    weft_status status = WEFT_OK;
    for (int32_t i = 0; i < p->group->n_members && status == WEFT_OK; i++) {
        const int32_t index = p->group->members[i];
        const weft_parameter *parameter = &engine->plan.declared->parameters[index];
        const bool separate = (p->rounded || p->widened) && !weft_parameter_is_matrix(parameter);
        weft_ref at = weft_ref_at(slot, p->image + weft_dtype_span(p->dtype, parameter->offset));
        if (separate) {
            const weft_ref image = at;
            at = weft_ref_at(slot, gains);
            gains += weft_f32_bytes(parameter->numel);
            if (p->rounded) status = assemble_gain(self, p, cut, slot, i, at, err);
            else
                WEFT_PLUGIN_CALL(status, engine->kernels, convert, err, engine->device, NULL, at, WEFT_F32, image,
                                 p->dtype, parameter->numel);
        }
        engine->compute_refs[index] = at;
        engine->compute_dtypes[index] = separate ? WEFT_F32 : p->dtype;
    }
    return status;
}

static weft_status on_release(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                              weft_error *err) {
    const weft_stepper *self = context;
    const weft_layout *layout = self->engine->plan.layout;
    const weft_unit *unit = &layout->units[instruction->unit];
    (void)err;
    for (int32_t g = 0; slots->unit >= 0 && g < unit->n_groups; g++) {
        const weft_group *group = &layout->groups[unit->groups[g]];
        for (int32_t i = 0; i < group->n_members; i++)
            self->engine->compute_refs[group->members[i]] = (weft_ref){NULL, 0};
    }
    return WEFT_OK;
}

/* All-gather in place, from the start of the unit's part of a region. */
static weft_status gather_in_place(weft_stepper *self, const weft_instruction *instruction, weft_ref region, int what,
                                   weft_error *err) {
    const weft_plan *plan = &self->engine->plan;
    weft_transfer transfer;
    const weft_planned_exchange planned = plan_exchange(self, &transfer, instruction);
    if (planned.way == WEFT_EXCHANGE_NONE) return WEFT_OK;
    transfer.to = weft_ref_at(region, plan->holds[what]->spans[plan->layout->units[instruction->unit].trained].at);
    transfer.from = weft_ref_at(transfer.to, planned.each * planned.place);
    return start_single(self, instruction, planned.way, &transfer, err);
}

static weft_status on_gather(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                             weft_error *err) {
    weft_stepper *self = context;
    const weft_plan *plan = &self->engine->plan;
    weft_gathered_part parts[WEFT_UNIT_GROUPS];
    weft_transfer to;
    const weft_planned_exchange planned = plan_exchange(self, &to, instruction);
    weft_status status = WEFT_OK;
    if (instruction->what == WEFT_PAYLOAD_SUM)
        return gather_in_place(self, instruction, self->engine->gradients.ref, WEFT_HOLD_GRADIENTS, err);
    if (slots->unit < 0) return WEFT_OK; /* the unit is complete on this rank */
    to.to = weft_step_slot(self, slots->unit).ref;
    weft_trace_use(self->trace, slots->unit, weft_gathered_layout(plan, &planned.cut, instruction->unit, parts));
    status = weft_stream_sync_fork(&self->order, &to.stream, instruction->queue, err);
    for (int32_t i = 0; i < plan->layout->units[instruction->unit].n_groups && status == WEFT_OK; i++)
        status = start_part(self, instruction, &parts[i], 2 * i, &planned, &to, err);
    return status;
}

static weft_status finish_gather(void *context, const weft_instruction *instruction,
                                 const weft_instruction_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const weft_cut cut = weft_cut_of(&self->mode_plan->job->spec, instruction->unit);
    weft_gathered_part parts[WEFT_UNIT_GROUPS];
    weft_status status = finish_exchanges(context, instruction, slots, err);
    if (status != WEFT_OK || slots->unit < 0) return status;
    (void)weft_gathered_layout(&self->engine->plan, &cut, instruction->unit, parts);
    for (int32_t g = 0; g < self->engine->plan.layout->units[instruction->unit].n_groups && status == WEFT_OK; g++)
        status = bind_members(self, &parts[g], &cut,
                              weft_engine_slot(self->engine, self->mode_plan->program, slots->unit).ref, err);
    return status;
}

/* ---- sums ---- */

/* An exchange's slot: the rounded source, the received rows, and one row widened to fp32. */
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
    const weft_unit_sum *sum = &self->mode_plan->sums[instruction->unit];
    const bool last = hop == (sum->two_hops ? 1 : 0);
    if (last && index == 0) return sum_ref(self, instruction->unit, instruction->scope);
    return weft_ref_at(self->engine->partials.ref,
                       weft_f32_bytes(sum->partials[hop] + sum->length[hop] * (index - (last ? 1 : 0))));
}

/* The source of a REDUCE: the micro-batch's gradient, or the first hop's sum. */
static weft_ref source_of(const weft_stepper *self, const weft_instruction *instruction,
                          const weft_instruction_slots *slots) {
    if (instruction->micro_batch < 0) return sum_at(self, instruction, 0, 0);
    return weft_step_gradient(self, instruction->unit, slots->gradients[instruction->unit]).ref;
}

/* Rounds the source before it is sent; without an exchange, to the type and back. */
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
    weft_transfer transfer;
    const weft_planned_exchange planned = plan_exchange(self, &transfer, instruction);
    weft_status status = WEFT_OK;
    transfer.from = source_of(self, instruction, slots);
    transfer.to = v.come;
    if (instruction->micro_batch >= 0)
        weft_trace_use(self->trace, slots->gradients[instruction->unit], weft_f32_bytes(v.rows.whole));
    if (slots->exchange >= 0)
        weft_trace_use(self->trace, slots->exchange, self->mode_plan->program->slots[slots->exchange].bytes);
    if (planned.way == WEFT_EXCHANGE_NONE)
        return narrow_source(self, &v, NULL, &transfer.from, err); /* no exchange: queue 0 */
    status = weft_stream_sync_fork(&self->order, &transfer.stream, instruction->queue, err);
    if (status == WEFT_OK) status = narrow_source(self, &v, transfer.stream, &transfer.from, err);
    return status == WEFT_OK ? start_exchange(self, instruction, 0, planned.way, &transfer, err) : status;
}

static weft_status add_elements(const weft_stepper *self, weft_ref to, weft_ref a, weft_ref b, int64_t n,
                                weft_error *err) {
    const weft_add args = {.struct_size = (uint32_t)sizeof args, .a = a, .b = b, .y = to, .n = n, .dtype = WEFT_F32};
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->engine->kernels, add, err, self->engine->device, NULL, &args);
    return status;
}

/* A row that is the sum on top and is not copied yet: the next row is added to it in place. */
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
    if (to.buffer == from.buffer && to.offset == from.offset) return WEFT_OK; /* the only micro-batch */
    WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, to, from, weft_f32_bytes(n));
    return status;
}

/* Adds a term to the sums of its hop. */
static weft_status join_term(weft_stepper *self, const weft_instruction *instruction, fresh_row *fresh, weft_ref row,
                             int64_t n, const weft_term *term, weft_error *err) {
    const int hop = instruction->micro_batch < 0 ? 1 : 0;
    weft_fold *fold = fold_of(self, instruction);
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

/* The number of a REDUCE's rows to add here: in reduce = fast the library has added them. */
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
    weft_status status = finish_exchanges(context, instruction, slots, err);
    for (int32_t i = 0; i < rows_to_add(self, index, v.rows.ranks) && status == WEFT_OK; i++) {
        weft_ref row = v.rows.ranks == 1 ? source_of(self, instruction, slots)
                                         : weft_ref_at(v.come, bytes * (fast ? 0 : rows[i].row));
        if (v.rows.ranks > 1 && v.rows.dtype != WEFT_F32) {
            status = convert_elements(self, NULL, v.wide, WEFT_F32, row, v.rows.dtype, n, err);
            row = v.wide;
        }
        if (status == WEFT_OK) status = join_term(self, instruction, &fresh, row, n, &rows[i], err);
        if (status == WEFT_OK && v.rows.dtype != WEFT_F32)
            status = settle_fresh_row(self, instruction, &fresh, n, err); /* `wide` is reused */
    }
    return status == WEFT_OK ? settle_fresh_row(self, instruction, &fresh, n, err) : status;
}

/* Advances the sums of a REDUCE's unit to their state after it. */
static void skip_reduce(weft_stepper *self, int32_t index) {
    const weft_instruction *instruction = &self->mode_plan->program->instructions[index];
    const weft_terms *terms = self->mode_plan->terms;
    const int32_t ranks = weft_exchange_reduce(&self->engine->plan, &self->mode_plan->job->spec, instruction->unit,
                                               instruction->scope, instruction->micro_batch >= 0)
                              .ranks;
    for (int32_t i = 0; i < rows_to_add(self, index, ranks); i++) {
        const weft_term *term = &terms->terms[terms->first[index] + i];
        (void)weft_fold_push(fold_of(self, instruction), term->lo, term->hi);
    }
}

void weft_communication_begin(weft_stepper *self, int32_t first) {
    const weft_mode_plan *mode_plan = self->mode_plan;
    const weft_program *program = mode_plan->program;
    self->n_in_flight = 0;
    for (int32_t i = 0; mode_plan->sums != NULL && i < 2 * self->engine->plan.layout->n_units; i++)
        self->folds[i] =
            weft_fold_begin(mode_plan->job->spec.view.reduce, program->micro_batches, mode_plan->sums[i / 2].loose);
    for (int32_t i = 0; i < first; i++) {
        const weft_instruction *instruction = &program->instructions[i];
        const int32_t ends = instruction->kind == WEFT_INSTRUCTION_WAIT ? instruction->waits
                             : instruction->queue == 0                  ? i
                                                                        : -1;
        if (ends >= 0 && program->instructions[ends].kind == WEFT_INSTRUCTION_REDUCE) skip_reduce(self, ends);
    }
}

/* ---- REFRESH, SEND and RECV ---- */

/* Point-to-point messages by kind: each kind has a lane, and its tags identify the messages. */
enum { KIND_REFRESH = WEFT_PAYLOAD_MICRO_BATCH_GRADIENT + 1, N_KINDS = KIND_REFRESH - WEFT_PAYLOAD_CARRY + 1 };
_Static_assert(N_KINDS <= WEFT_COMM_LANES, "a lane for each kind of message");

static int32_t lane_of(const weft_instruction *instruction) {
    return (instruction->kind == WEFT_INSTRUCTION_REFRESH ? KIND_REFRESH : instruction->what) - WEFT_PAYLOAD_CARRY;
}

/* Sets tag and lane. Messages of one kind and micro-batch have their own tags; if there are too few tags, distant
 * micro-batches share one. */
static void address(weft_transfer *out, const weft_engine *engine, const weft_instruction *instruction, int32_t of,
                    int32_t micro_batch) {
    const int64_t units = engine->plan.layout->n_units, segments = engine->plan.declared->n_segments;
    const int64_t things = units > segments ? units : segments;
    const int32_t lane = lane_of(instruction);
    const int64_t tag = ((int64_t)micro_batch * N_KINDS + lane) * things + of;
    out->tag = (int32_t)(tag % ((int64_t)engine->ranks.info.max_tag + 1));
    out->lane = lane;
}

/* An owned unit's trained part is sent from its owner to a rank with a copy; others are gathered. */
static weft_status on_refresh(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                              weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    const int32_t index = engine->plan.layout->units[instruction->unit].trained;
    weft_transfer transfer;
    const weft_planned_exchange planned = plan_exchange(self, &transfer, instruction);
    (void)slots;
    if (self->mode_plan->job->spec.view.placements[instruction->unit].parameters != WEFT_OWNED)
        return gather_in_place(self, instruction, engine->parameters.ref, WEFT_HOLD_PARAMETERS, err);
    if (planned.way == WEFT_EXCHANGE_NONE) return WEFT_OK;
    address(&transfer, engine, instruction, instruction->unit, 0);
    transfer.from = transfer.to =
        weft_ref_at(engine->parameters.ref, engine->plan.holds[WEFT_HOLD_PARAMETERS]->spans[index].at);
    return start_single(self, instruction, planned.way, &transfer, err);
}

static weft_status on_transfer(void *context, const weft_instruction *instruction, const weft_instruction_slots *slots,
                               weft_error *err) {
    weft_stepper *self = context;
    const int32_t slot = instruction->what == WEFT_PAYLOAD_CARRY            ? slots->carry_out
                         : instruction->what == WEFT_PAYLOAD_CARRY_GRADIENT ? slots->d_carry_out
                                                                            : slots->gradients[instruction->unit];
    const weft_graph *graph = NULL;
    weft_transfer transfer;
    const weft_planned_exchange planned = plan_exchange(self, &transfer, instruction);
    transfer.from = transfer.to = instruction->unit >= 0 ? weft_step_gradient(self, instruction->unit, slot).ref
                                                         : weft_step_slot(self, slot).ref;
    if (instruction->unit < 0) { /* both ranks know the micro-batch's shape, which may be smaller than planned */
        graph = weft_graph_set_at(self->mode_plan->graphs, self->micro_batch_lengths[instruction->micro_batch],
                                  instruction->segment);
        transfer.n = graph == NULL ? 0 : weft_graph_size(graph)->carry;
    }
    address(&transfer, self->engine, instruction, instruction->unit >= 0 ? instruction->unit : instruction->segment,
            instruction->micro_batch);
    weft_trace_use(self->trace, slot, transfer.n);
    return start_single(self, instruction, planned.way, &transfer, err);
}

void weft_communication_table(weft_exec_table *table) {
    table->run[WEFT_INSTRUCTION_GATHER] = on_gather;
    table->finish[WEFT_INSTRUCTION_GATHER] = finish_gather;
    table->run[WEFT_INSTRUCTION_RELEASE] = on_release;
    table->run[WEFT_INSTRUCTION_REDUCE] = on_reduce;
    table->finish[WEFT_INSTRUCTION_REDUCE] = finish_reduce;
    table->run[WEFT_INSTRUCTION_REFRESH] = on_refresh;
    table->finish[WEFT_INSTRUCTION_REFRESH] = finish_exchanges;
    table->run[WEFT_INSTRUCTION_SEND] = table->run[WEFT_INSTRUCTION_RECV] = on_transfer;
    table->finish[WEFT_INSTRUCTION_SEND] = table->finish[WEFT_INSTRUCTION_RECV] = finish_exchanges;
}

/* ---- connections ---- */

static void note_channels(weft_p2p_channels *lanes, const weft_engine *engine, const weft_mode_plan *mode_plan) {
    for (int32_t i = 0; mode_plan->program != NULL && i < mode_plan->program->n_instructions; i++) {
        const weft_instruction *instruction = &mode_plan->program->instructions[i];
        weft_planned_exchange planned;
        if (instruction->kind != WEFT_INSTRUCTION_SEND && instruction->kind != WEFT_INSTRUCTION_RECV &&
            instruction->kind != WEFT_INSTRUCTION_REFRESH)
            continue;
        planned = weft_exchange_plan(&engine->plan, &mode_plan->job->spec, instruction, engine->ranks.rank);
        if (planned.way == WEFT_EXCHANGE_SEND) lanes[planned.peer].sends[lane_of(instruction)] = true;
        if (planned.way == WEFT_EXCHANGE_RECV) lanes[planned.peer].receives[lane_of(instruction)] = true;
    }
}

weft_status weft_engine_connect(const weft_engine *engine, weft_error *err) {
    weft_p2p_channels *lanes = weft_alloc(engine->ranks.world, sizeof *lanes);
    weft_status status = WEFT_OK;
    note_channels(lanes, engine, &engine->plan.train);
    note_channels(lanes, engine, &engine->plan.evaluate);
    status = weft_ranks_connect(&engine->ranks, lanes, err);
    free(lanes);
    return status;
}
