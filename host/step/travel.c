/* host/step/travel.c: see travel.h. */
#include "step/travel.h"

#include "plan/sums.h"
#include "plugin/enter.h"
#include "program/job.h"
#include "step/bind.h"
#include "step/flight.h"
#include "step/gather.h"

#include <stdlib.h>

static weft_cut cut_of(const weft_stepper *self, int32_t unit) {
    return weft_cut_of(&self->stage->job->spec, unit);
}

static weft_status on_release(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    (void)err;
    if (slots->unit >= 0) weft_gather_forget(context, event);
    return WEFT_OK;
}

/* An event that is one exchange and nothing else. */
static weft_status set_out_alone(weft_stepper *self, const weft_event *event, weft_exchange_fn *how, const char *name,
                                 weft_transfer *what, weft_error *err) {
    const weft_status status = weft_flight_depart(self, event, &what->stream, err);
    return status == WEFT_OK ? weft_flight_set_out(self, event, 0, how, name, what, err) : status;
}

/* ---- the finished sum ---- */

/* In place: every rank has its own piece where the others' arrive. */
static weft_status gather_sum(weft_stepper *self, const weft_event *event, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_cut cut = cut_of(self, event->unit);
    const weft_group *group = weft_sums_group(&engine->plan, event->unit);
    const bool whole = self->stage->job->spec.view.placements[event->unit].gradients == WEFT_REPLICATED;
    const int32_t scope = whole ? WEFT_SCOPE_ALL : WEFT_SCOPE_ACROSS;
    const int32_t index = engine->plan.layout->units[event->unit].trained;
    weft_transfer transfer = {.dtype = WEFT_F32};
    if (weft_scope_size(&cut, scope) == 1) return WEFT_OK;
    transfer.group = weft_ranks_group_of(&engine->ranks, &cut, scope);
    transfer.n = weft_hold_piece(engine->plan.layout, group, cut.replicas);
    transfer.to = weft_ref_at(engine->gradients.ref, engine->plan.holds[WEFT_HOLD_GRADIENTS]->spans[index].at);
    transfer.from =
        weft_ref_at(transfer.to, weft_f32_bytes(transfer.n) * weft_scope_place(&cut, scope, engine->ranks.rank));
    return set_out_alone(self, event, engine->ranks.plugin->all_gather, "all_gather", &transfer, err);
}

static weft_status on_gather(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    if (event->what == WEFT_WHAT_SUM) return gather_sum(context, event, err);
    return weft_gather_start(context, event, slots->unit, err);
}

static weft_status finish_gather(void *context, const weft_event *event, const weft_event_slots *slots,
                                 weft_error *err) {
    const weft_status status = weft_flight_finish(context, event, slots, err);
    return status == WEFT_OK ? weft_gather_finish(context, event, slots->unit, err) : status;
}

/* ---- sums ---- */

/* An exchange's slot: what is given in another type, what comes, and one row of it widened. */
typedef struct exchange_view {
    weft_ref give, come, wide;
    int64_t row, whole; /* elements: of a row; of all that is given */
    int32_t ranks, dtype;
} exchange_view;

static exchange_view view_of(const weft_stepper *self, const weft_event *event, const weft_event_slots *slots) {
    const weft_engine *engine = self->engine;
    const weft_strategy_job *job = &self->stage->job->spec.view;
    const weft_cut cut = cut_of(self, event->unit);
    const int64_t piece =
        weft_hold_piece(engine->plan.layout, weft_sums_group(&engine->plan, event->unit), cut.replicas);
    exchange_view v = {.dtype = event->leaf >= 0 ? job->reduce_dtype : WEFT_F32};
    v.ranks = weft_scope_size(&cut, event->scope);
    v.row = event->scope == WEFT_SCOPE_NODE ? piece * cut.groups : piece;
    v.whole = event->scope == WEFT_SCOPE_ACROSS ? piece * cut.groups : piece * cut.replicas;
    if (slots->exchange < 0) return v;
    v.give = v.come = weft_step_slot(self, slots->exchange).ref;
    if (v.dtype != WEFT_F32) v.come = weft_ref_at(v.give, weft_dtype_span(v.dtype, v.whole));
    v.wide = weft_ref_at(v.come, weft_dtype_span(v.dtype, v.row) * (job->reduce == WEFT_REDUCE_FAST ? 1 : v.ranks));
    return v;
}

static weft_status convert(const weft_stepper *self, weft_stream *stream, weft_ref to, int32_t dtype_to, weft_ref from,
                           int32_t dtype_from, int64_t n, weft_error *err) {
    weft_status status = WEFT_OK;
    WEFT_PLUGIN_CALL(status, self->engine->kernels, convert, err, self->engine->device, stream, to, dtype_to, from,
                     dtype_from, n);
    return status;
}

/* The sum in slot `index` of a hop. */
static weft_ref sum_at(const weft_stepper *self, const weft_event *event, int hop, int32_t index) {
    const weft_engine *engine = self->engine;
    const weft_unit_sum *sum = &self->stage->sums[event->unit];
    const bool last = hop == (sum->two_hops ? 1 : 0);
    if (last && index == 0) return weft_sum_ref(engine, &self->stage->job->spec, event->unit, event->scope);
    return weft_ref_at(engine->partials.ref,
                       weft_f32_bytes(sum->partials[hop] + sum->length[hop] * (index - (last ? 1 : 0))));
}

/* What a REDUCE gives: the leaf's gradient, or what the first hop has come to. */
static weft_ref source_of(const weft_stepper *self, const weft_event *event, const weft_event_slots *slots) {
    if (event->leaf < 0) return sum_at(self, event, 0, 0);
    return weft_step_gradient(self, event->unit, slots->gradients[event->unit]).ref;
}

/* Rounded before it goes; where it stays, there and back. */
static weft_status narrow(const weft_stepper *self, const exchange_view *v, weft_stream *stream, weft_ref *from,
                          weft_error *err) {
    weft_status status = WEFT_OK;
    if (v->dtype != WEFT_BF16) return WEFT_OK;
    status = convert(self, stream, v->give, WEFT_BF16, *from, WEFT_F32, v->whole, err);
    if (status == WEFT_OK && v->ranks == 1)
        status = convert(self, stream, *from, WEFT_F32, v->give, WEFT_BF16, v->whole, err);
    *from = v->give;
    return status;
}

static weft_status on_reduce(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    const exchange_view v = view_of(self, event, slots);
    const weft_cut cut = cut_of(self, event->unit);
    const bool fast = self->stage->job->spec.view.reduce == WEFT_REDUCE_FAST;
    weft_transfer transfer = {.from = source_of(self, event, slots), .to = v.come, .n = v.row, .dtype = v.dtype};
    weft_status status = WEFT_OK;
    if (event->leaf >= 0) weft_trace_use(self->trace, slots->gradients[event->unit], weft_f32_bytes(v.whole));
    if (slots->exchange >= 0)
        weft_trace_use(self->trace, slots->exchange, self->stage->program->slots[slots->exchange].bytes);
    if (v.ranks == 1) return narrow(self, &v, NULL, &transfer.from, err); /* nothing travels: queue 0 does it */
    status = weft_flight_depart(self, event, &transfer.stream, err);
    if (status == WEFT_OK) status = narrow(self, &v, transfer.stream, &transfer.from, err);
    if (status != WEFT_OK) return status;
    transfer.group = weft_ranks_group_of(&engine->ranks, &cut, event->scope);
    return weft_flight_set_out(self, event, 0,
                               fast ? engine->ranks.plugin->reduce_scatter : engine->ranks.plugin->all_to_all,
                               fast ? "reduce_scatter" : "all_to_all", &transfer, err);
}

static weft_status add(const weft_stepper *self, weft_ref to, weft_ref a, weft_ref b, int64_t n, weft_error *err) {
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

static weft_status settle(const weft_stepper *self, const weft_event *event, fresh_row *fresh, int64_t n,
                          weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_ref from = fresh->ref;
    weft_ref to = {NULL, 0};
    weft_status status = WEFT_OK;
    if (fresh->slot < 0) return WEFT_OK;
    to = sum_at(self, event, event->leaf < 0 ? 1 : 0, fresh->slot);
    fresh->slot = -1;
    if (to.buffer == from.buffer && to.offset == from.offset) return WEFT_OK; /* the only leaf: it is the sum */
    WEFT_PLUGIN_CALL(status, engine->kernels, copy, err, engine->device, NULL, to, from, weft_f32_bytes(n));
    return status;
}

/* A term joins the sums of its hop. */
static weft_status take_term(weft_stepper *self, const weft_event *event, fresh_row *fresh, weft_ref row, int64_t n,
                             const weft_term *term, weft_error *err) {
    const int hop = event->leaf < 0 ? 1 : 0;
    weft_fold *fold = weft_flight_fold(self, event->unit, hop);
    const weft_fold_step step = weft_fold_push(fold, term->lo, term->hi);
    const weft_ref to = sum_at(self, event, hop, step.slot);
    const bool joins_fresh = step.add && fresh->slot == step.slot;
    const weft_ref sum = joins_fresh ? fresh->ref : to;
    weft_status status = WEFT_OK;
    if (joins_fresh) fresh->slot = -1;
    else status = settle(self, event, fresh, n, err);
    if (status == WEFT_OK && step.add) status = add(self, to, sum, row, n, err);
    if (!step.add) *fresh = (fresh_row){row, step.slot};
    for (int32_t i = 0; i < step.merges && status == WEFT_OK; i++) {
        const int32_t last = fold->top + step.merges - 1 - i;
        const weft_ref below = sum_at(self, event, hop, last - 1);
        status = add(self, below, below, sum_at(self, event, hop, last), n, err);
    }
    return status;
}

/* Row by row, in the order of the leaves. */
static weft_status finish_reduce(void *context, const weft_event *event, const weft_event_slots *slots,
                                 weft_error *err) {
    weft_stepper *self = context;
    const weft_terms *terms = self->stage->terms;
    const int32_t index = (int32_t)(event - self->stage->program->events);
    const weft_term *rows = &terms->terms[terms->first[index]];
    const exchange_view v = view_of(self, event, slots);
    const bool fast = self->stage->job->spec.view.reduce == WEFT_REDUCE_FAST;
    const int64_t size = weft_dtype_bytes(v.dtype), n = v.ranks == 1 ? v.whole : v.row;
    fresh_row fresh = {{NULL, 0}, -1};
    weft_status status = weft_flight_finish(context, event, slots, err);
    for (int32_t i = 0; i < terms->n[index] && status == WEFT_OK; i++) {
        weft_ref row = v.ranks == 1 ? source_of(self, event, slots)
                                    : weft_ref_at(v.come, size * v.row * (fast ? 0 : rows[i].row));
        if (v.ranks > 1 && v.dtype == WEFT_BF16) {
            status = convert(self, NULL, v.wide, WEFT_F32, row, WEFT_BF16, v.row, err);
            row = v.wide;
        }
        if (status == WEFT_OK) status = take_term(self, event, &fresh, row, n, &rows[i], err);
        if (status == WEFT_OK && v.dtype == WEFT_BF16) status = settle(self, event, &fresh, n, err); /* `wide` is one */
        if (fast && v.ranks > 1) break; /* the library has added the rows up */
    }
    return status == WEFT_OK ? settle(self, event, &fresh, n, err) : status;
}

/* ---- copies that STEP left stale ---- */

/* What travels between two ranks by itself; for the tags, which tell such messages apart. */
enum { TAG_REFRESH = WEFT_WHAT_LEAF_GRADIENT + 1 };

/* Messages of one sort and leaf never meet another's; where there are more than tags, those of far leaves share one. */
static int32_t tag_of(const weft_engine *engine, int32_t what, int32_t of, int32_t leaf) {
    const int64_t units = engine->plan.layout->n_units, segments = engine->plan.declared->n_segments;
    const int64_t sorts = TAG_REFRESH - WEFT_WHAT_CARRY + 1, things = units > segments ? units : segments;
    const int64_t tag = (leaf * sorts + what - WEFT_WHAT_CARRY) * things + of;
    return (int32_t)(tag % ((int64_t)engine->ranks.info.max_tag + 1));
}

/* The trained part of an owned unit, from its owner to the rank that has a copy. */
static weft_status send_copy(weft_stepper *self, const weft_event *event, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_job_spec *job = &self->stage->job->spec;
    const int32_t owner = job->view.placements[event->unit].owner;
    const int32_t other = weft_job_spec_borrower(job, event->unit);
    const int32_t index = engine->plan.layout->units[event->unit].trained;
    const bool send = owner == engine->ranks.rank;
    weft_transfer transfer = {.group = engine->ranks.everyone, .dtype = WEFT_F32, .peer = send ? other : owner};
    if (other < 0 || index < 0 || (!send && other != engine->ranks.rank)) return WEFT_OK;
    transfer.n = engine->plan.layout->groups[index].numel;
    transfer.tag = tag_of(engine, TAG_REFRESH, event->unit, 0);
    transfer.from = transfer.to =
        weft_ref_at(engine->parameters.ref, engine->plan.holds[WEFT_HOLD_PARAMETERS]->spans[index].at);
    return set_out_alone(self, event, send ? engine->ranks.plugin->send : engine->ranks.plugin->recv,
                         send ? "send" : "recv", &transfer, err);
}

static weft_status on_refresh(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    const weft_cut cut = cut_of(self, event->unit);
    const weft_group *group = weft_sums_group(&engine->plan, event->unit);
    const int32_t index = engine->plan.layout->units[event->unit].trained;
    weft_transfer transfer = {.dtype = WEFT_F32};
    (void)slots;
    if (self->stage->job->spec.view.placements[event->unit].parameters == WEFT_OWNED)
        return send_copy(self, event, err);
    if (group == NULL || cut.group == 1) return WEFT_OK;
    transfer.group = weft_ranks_group_of(&engine->ranks, &cut, WEFT_SCOPE_NODE);
    transfer.n = weft_hold_piece(engine->plan.layout, group, cut.replicas) * cut.groups;
    transfer.to = weft_ref_at(engine->parameters.ref, engine->plan.holds[WEFT_HOLD_PARAMETERS]->spans[index].at);
    transfer.from = weft_ref_at(transfer.to, weft_f32_bytes(transfer.n) *
                                                 weft_scope_place(&cut, WEFT_SCOPE_NODE, engine->ranks.rank));
    return set_out_alone(self, event, engine->ranks.plugin->all_gather, "all_gather", &transfer, err);
}

/* ---- from rank to rank ---- */

/* Bytes that go over: both sides know the leaf's shape, which may be smaller than what the slot is for. */
static int64_t bytes_of(const weft_stepper *self, const weft_event *event) {
    const weft_graph *graph = NULL;
    if (event->unit >= 0) return self->stage->job->spec.units[event->unit].gradient;
    graph = weft_graph_set_at(self->stage->graphs, self->leaf_lengths[event->leaf], event->segment);
    return graph == NULL ? 0 : weft_graph_size(graph)->carry;
}

static weft_status on_transfer(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const weft_engine *engine = self->engine;
    const int32_t slot = event->what == WEFT_WHAT_CARRY            ? slots->carry_out
                         : event->what == WEFT_WHAT_CARRY_GRADIENT ? slots->d_carry_out
                                                                   : slots->gradients[event->unit];
    const bool send = event->kind == WEFT_EVENT_SEND;
    weft_transfer transfer = {.group = engine->ranks.everyone, .dtype = WEFT_U8, .peer = event->peer};
    transfer.from = transfer.to = event->unit >= 0 ? weft_step_gradient(self, event->unit, slot).ref
                                                   : weft_step_slot(self, slot).ref;
    transfer.n = bytes_of(self, event);
    transfer.tag = tag_of(engine, event->what, event->unit >= 0 ? event->unit : event->segment, event->leaf);
    weft_trace_use(self->trace, slot, transfer.n);
    return set_out_alone(self, event, send ? engine->ranks.plugin->send : engine->ranks.plugin->recv,
                         send ? "send" : "recv", &transfer, err);
}

void weft_travel_table(weft_exec_table *table) {
    table->run[WEFT_EVENT_GATHER] = on_gather;
    table->finish[WEFT_EVENT_GATHER] = finish_gather;
    table->run[WEFT_EVENT_RELEASE] = on_release;
    table->run[WEFT_EVENT_REDUCE] = on_reduce;
    table->finish[WEFT_EVENT_REDUCE] = finish_reduce;
    table->run[WEFT_EVENT_REFRESH] = on_refresh;
    table->finish[WEFT_EVENT_REFRESH] = weft_flight_finish;
    table->run[WEFT_EVENT_SEND] = table->run[WEFT_EVENT_RECV] = on_transfer;
    table->finish[WEFT_EVENT_SEND] = table->finish[WEFT_EVENT_RECV] = weft_flight_finish;
}
