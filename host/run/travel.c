/* host/run/travel.c: see travel.h. */
#include "run/travel.h"

#include "plugin/enter.h"
#include "program/job.h"
#include "run/bind.h"
#include "run/flight.h"
#include "run/gather.h"

#include <stdlib.h>

static weft_status on_release(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    (void)err;
    if (slots->unit >= 0) weft_gather_forget(context, event);
    return WEFT_OK;
}

static weft_planned_exchange planned_of(const weft_stepper *self, const weft_event *event) {
    return weft_exchange_plan(&self->engine->plan, &self->stage->job->spec, event, self->engine->ranks.rank);
}

/* An event that is one exchange and nothing else. */
static weft_status set_out_alone(weft_stepper *self, const weft_event *event, int32_t way, weft_transfer *what,
                                 weft_error *err) {
    const weft_status status = weft_flight_depart(self, event, &what->stream, err);
    return status == WEFT_OK ? weft_flight_set_out(self, event, 0, way, what, err) : status;
}

/* In place: every rank has its own row where the others' arrive, from the start of its part of a region on. */
static weft_status gather_in_place(weft_stepper *self, const weft_event *event, weft_ref region, int what,
                                   weft_error *err) {
    const weft_plan *plan = &self->engine->plan;
    const weft_planned_exchange planned = planned_of(self, event);
    weft_transfer transfer = weft_flight_transfer(self, &planned);
    if (planned.way == WEFT_EXCHANGE_NONE) return WEFT_OK;
    transfer.to = weft_ref_at(region, plan->holds[what]->spans[plan->layout->units[event->unit].trained].at);
    transfer.from = weft_ref_at(transfer.to, planned.each * planned.place);
    return set_out_alone(self, event, planned.way, &transfer, err);
}

static weft_status on_gather(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    if (event->what == WEFT_WHAT_SUM)
        return gather_in_place(self, event, self->engine->gradients.ref, WEFT_HOLD_GRADIENTS, err);
    return weft_gather_start(self, event, slots->unit, err);
}

static weft_status finish_gather(void *context, const weft_event *event, const weft_event_slots *slots,
                                 weft_error *err) {
    const weft_status status = weft_flight_finish(context, event, slots, err);
    return status == WEFT_OK ? weft_gather_finish(context, event, slots->unit, err) : status;
}

/* ---- sums ---- */

/* An exchange's slot: what is given in another type, what comes, and one row of it widened. */
typedef struct exchange_view {
    weft_reduce_rows rows;
    weft_ref give, come, wide;
} exchange_view;

static exchange_view view_exchange(const weft_stepper *self, const weft_event *event, const weft_event_slots *slots) {
    exchange_view v = {.rows = weft_exchange_reduce(&self->engine->plan, &self->stage->job->spec, event->unit,
                                                    event->scope, event->leaf >= 0)};
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

static weft_status on_reduce(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const exchange_view v = view_exchange(self, event, slots);
    const weft_planned_exchange planned = planned_of(self, event);
    weft_transfer transfer = weft_flight_transfer(self, &planned);
    weft_status status = WEFT_OK;
    transfer.from = source_of(self, event, slots);
    transfer.to = v.come;
    if (event->leaf >= 0) weft_trace_use(self->trace, slots->gradients[event->unit], weft_f32_bytes(v.rows.whole));
    if (slots->exchange >= 0)
        weft_trace_use(self->trace, slots->exchange, self->stage->program->slots[slots->exchange].bytes);
    if (planned.way == WEFT_EXCHANGE_NONE)
        return narrow_source(self, &v, NULL, &transfer.from, err); /* nothing travels: queue 0 does it */
    status = weft_flight_depart(self, event, &transfer.stream, err);
    if (status == WEFT_OK) status = narrow_source(self, &v, transfer.stream, &transfer.from, err);
    return status == WEFT_OK ? weft_flight_set_out(self, event, 0, planned.way, &transfer, err) : status;
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

static weft_status settle_fresh_row(const weft_stepper *self, const weft_event *event, fresh_row *fresh, int64_t n,
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
static weft_status join_term(weft_stepper *self, const weft_event *event, fresh_row *fresh, weft_ref row, int64_t n,
                             const weft_term *term, weft_error *err) {
    const int hop = event->leaf < 0 ? 1 : 0;
    weft_fold *fold = weft_flight_fold(self, event->unit, hop);
    const weft_fold_step step = weft_fold_push(fold, term->lo, term->hi);
    const weft_ref to = sum_at(self, event, hop, step.slot);
    const bool joins_fresh = step.add && fresh->slot == step.slot;
    const weft_ref sum = joins_fresh ? fresh->ref : to;
    weft_status status = WEFT_OK;
    if (joins_fresh) fresh->slot = -1;
    else status = settle_fresh_row(self, event, fresh, n, err);
    if (status == WEFT_OK && step.add) status = add_elements(self, to, sum, row, n, err);
    if (!step.add) *fresh = (fresh_row){row, step.slot};
    for (int32_t i = 0; i < step.merges && status == WEFT_OK; i++) {
        const int32_t last = fold->top + step.merges - 1 - i;
        const weft_ref below = sum_at(self, event, hop, last - 1);
        status = add_elements(self, below, below, sum_at(self, event, hop, last), n, err);
    }
    return status;
}

/* Of a REDUCE's rows, those that are added here: the library has added up all of them where the order is open. */
static int32_t rows_to_add(const weft_stepper *self, int32_t index, int32_t ranks) {
    const bool fast = self->stage->job->spec.view.reduce == WEFT_REDUCE_FAST;
    const int32_t n = self->stage->terms->n[index];
    return fast && ranks > 1 && n > 1 ? 1 : n;
}

/* Row by row, in the order of the leaves. */
static weft_status finish_reduce(void *context, const weft_event *event, const weft_event_slots *slots,
                                 weft_error *err) {
    weft_stepper *self = context;
    const weft_terms *terms = self->stage->terms;
    const int32_t index = (int32_t)(event - self->stage->program->events);
    const weft_term *rows = &terms->terms[terms->first[index]];
    const exchange_view v = view_exchange(self, event, slots);
    const bool fast = self->stage->job->spec.view.reduce == WEFT_REDUCE_FAST;
    const int64_t bytes = weft_dtype_span(v.rows.dtype, v.rows.row), n = v.rows.row;
    fresh_row fresh = {{NULL, 0}, -1};
    weft_status status = weft_flight_finish(context, event, slots, err);
    for (int32_t i = 0; i < rows_to_add(self, index, v.rows.ranks) && status == WEFT_OK; i++) {
        weft_ref row = v.rows.ranks == 1 ? source_of(self, event, slots)
                                         : weft_ref_at(v.come, bytes * (fast ? 0 : rows[i].row));
        if (v.rows.ranks > 1 && v.rows.dtype != WEFT_F32) {
            status = convert_elements(self, NULL, v.wide, WEFT_F32, row, v.rows.dtype, n, err);
            row = v.wide;
        }
        if (status == WEFT_OK) status = join_term(self, event, &fresh, row, n, &rows[i], err);
        if (status == WEFT_OK && v.rows.dtype != WEFT_F32)
            status = settle_fresh_row(self, event, &fresh, n, err); /* `wide` is one */
    }
    return status == WEFT_OK ? settle_fresh_row(self, event, &fresh, n, err) : status;
}

/* The sums of its unit stand as they do when it has ended. */
static void pass_over_reduce(weft_stepper *self, int32_t index) {
    const weft_event *event = &self->stage->program->events[index];
    const weft_terms *terms = self->stage->terms;
    const int32_t ranks =
        weft_exchange_reduce(&self->engine->plan, &self->stage->job->spec, event->unit, event->scope, event->leaf >= 0)
            .ranks;
    weft_fold *fold = weft_flight_fold(self, event->unit, event->leaf < 0 ? 1 : 0);
    for (int32_t i = 0; i < rows_to_add(self, index, ranks); i++) {
        const weft_term *term = &terms->terms[terms->first[index] + i];
        (void)weft_fold_push(fold, term->lo, term->hi);
    }
}

void weft_travel_pass_over(weft_stepper *self, int32_t first) {
    const weft_program *program = self->stage->program;
    for (int32_t i = 0; i < first; i++) {
        const weft_event *event = &program->events[i];
        const int32_t ends = event->kind == WEFT_EVENT_WAIT ? event->waits : event->queue == 0 ? i : -1;
        if (ends >= 0 && program->events[ends].kind == WEFT_EVENT_REDUCE) pass_over_reduce(self, ends);
    }
}

/* ---- copies that STEP left stale ---- */

/* What travels between two ranks by itself, by sorts; each has a lane, and its tags tell its messages apart. */
enum { TAG_REFRESH = WEFT_WHAT_LEAF_GRADIENT + 1, N_SORTS = TAG_REFRESH - WEFT_WHAT_CARRY + 1 };
_Static_assert(N_SORTS <= WEFT_COMM_LANES, "a lane for each sort of message");

int32_t weft_travel_lane(const weft_event *event) {
    return (event->kind == WEFT_EVENT_REFRESH ? TAG_REFRESH : event->what) - WEFT_WHAT_CARRY;
}

/* Messages of one sort and leaf never meet another's; where there are more than tags, those of far leaves share one. */
static void address(weft_transfer *out, const weft_engine *engine, const weft_event *event, int32_t of, int32_t leaf) {
    const int64_t units = engine->plan.layout->n_units, segments = engine->plan.declared->n_segments;
    const int64_t things = units > segments ? units : segments;
    const int32_t lane = weft_travel_lane(event);
    const int64_t tag = ((int64_t)leaf * N_SORTS + lane) * things + of;
    out->tag = (int32_t)(tag % ((int64_t)engine->ranks.info.max_tag + 1));
    out->lane = lane;
}

/* The trained part of an owned unit, from its owner to the rank that has a copy. */
static weft_status send_copy(weft_stepper *self, const weft_event *event, weft_error *err) {
    const weft_engine *engine = self->engine;
    const weft_planned_exchange planned = planned_of(self, event);
    const int32_t index = engine->plan.layout->units[event->unit].trained;
    weft_transfer transfer = weft_flight_transfer(self, &planned);
    if (planned.way == WEFT_EXCHANGE_NONE) return WEFT_OK;
    address(&transfer, engine, event, event->unit, 0);
    transfer.from = transfer.to =
        weft_ref_at(engine->parameters.ref, engine->plan.holds[WEFT_HOLD_PARAMETERS]->spans[index].at);
    return set_out_alone(self, event, planned.way, &transfer, err);
}

static weft_status on_refresh(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    (void)slots;
    if (self->stage->job->spec.view.placements[event->unit].parameters == WEFT_OWNED)
        return send_copy(self, event, err);
    return gather_in_place(self, event, self->engine->parameters.ref, WEFT_HOLD_PARAMETERS, err);
}

/* ---- from rank to rank ---- */

/* Bytes of a carry: both sides know the leaf's shape, which may be smaller than what was planned for. */
static int64_t carry_bytes(const weft_stepper *self, const weft_event *event) {
    const weft_graph *graph = weft_graph_set_at(self->stage->graphs, self->leaf_lengths[event->leaf], event->segment);
    return graph == NULL ? 0 : weft_graph_size(graph)->carry;
}

static weft_status on_transfer(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err) {
    weft_stepper *self = context;
    const int32_t slot = event->what == WEFT_WHAT_CARRY            ? slots->carry_out
                         : event->what == WEFT_WHAT_CARRY_GRADIENT ? slots->d_carry_out
                                                                   : slots->gradients[event->unit];
    const weft_planned_exchange planned = planned_of(self, event);
    weft_transfer transfer = weft_flight_transfer(self, &planned);
    transfer.from = transfer.to = event->unit >= 0 ? weft_step_gradient(self, event->unit, slot).ref
                                                   : weft_step_slot(self, slot).ref;
    if (event->unit < 0) transfer.n = carry_bytes(self, event);
    address(&transfer, self->engine, event, event->unit >= 0 ? event->unit : event->segment, event->leaf);
    weft_trace_use(self->trace, slot, transfer.n);
    return set_out_alone(self, event, planned.way, &transfer, err);
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
