/* host/program/exchange.c: see exchange.h. */
#include "program/exchange.h"

#include "program/gathered.h"
#include "program/job.h"

int64_t weft_exchange_piece(const weft_plan *plan, const weft_job_spec *job, int32_t unit) {
    const weft_group *group = weft_layout_trained(plan->layout, unit);
    return group == NULL ? 0 : weft_hold_piece(plan->layout, group, weft_cut_of(job, unit).replicas);
}

/* ---- REDUCE ---- */

weft_reduce_rows weft_exchange_reduce(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t scope,
                                      bool is_leaf) {
    const weft_cut cut = weft_cut_of(job, unit);
    const int64_t piece = weft_exchange_piece(plan, job, unit);
    const bool is_fast = job->view.reduce == WEFT_REDUCE_FAST;
    weft_reduce_rows out = {.ranks = weft_scope_size(&cut, scope),
                            .dtype = is_leaf ? job->view.reduce_dtype : WEFT_F32,
                            .whole = piece * (scope == WEFT_SCOPE_ACROSS ? cut.groups : cut.replicas)};
    const bool is_narrow = out.dtype != WEFT_F32;
    out.row = out.whole / out.ranks;
    out.come = is_narrow ? weft_dtype_span(out.dtype, out.whole) : 0;
    out.wide = out.bytes = out.come;
    if (out.ranks == 1) return out;
    out.wide += weft_dtype_span(out.dtype, out.row) * (is_fast ? 1 : out.ranks);
    out.bytes = out.wide + (is_narrow ? weft_f32_bytes(out.row) : 0);
    return out;
}

/* ---- one event ---- */

static weft_planned_exchange plan_nothing(void) {
    const weft_planned_exchange none = {.way = WEFT_EXCHANGE_NONE, .ranks = 1};
    return none;
}

/* n elements of each rank of the unit's scope to each other one. */
static weft_planned_exchange plan_group(const weft_job_spec *job, const weft_event *event, int32_t scope, int32_t rank,
                                        int32_t way, int32_t dtype, int64_t n) {
    weft_planned_exchange out = {.way = way, .scope = scope, .dtype = dtype, .n = n};
    out.cut = weft_cut_of(job, event->unit);
    out.ranks = weft_scope_size(&out.cut, scope);
    if (out.ranks == 1 || n == 0) return plan_nothing();
    out.place = weft_scope_place(&out.cut, scope, rank);
    out.each = weft_dtype_span(dtype, n);
    out.sent = out.each * (out.ranks - 1);
    return out;
}

static weft_planned_exchange plan_message(int32_t way, int32_t peer, int32_t dtype, int64_t n) {
    weft_planned_exchange out = {.way = way, .peer = peer, .ranks = 2, .dtype = dtype, .n = n};
    out.each = out.sent = weft_dtype_span(dtype, n);
    return out;
}

static weft_planned_exchange plan_gather(const weft_plan *plan, const weft_job_spec *job, const weft_event *event,
                                         int32_t rank) {
    const bool is_whole = job->view.placements[event->unit].gradients == WEFT_REPLICATED;
    if (event->what == WEFT_WHAT_SUM)
        return plan_group(job, event, is_whole ? WEFT_SCOPE_ALL : WEFT_SCOPE_ACROSS, rank, WEFT_EXCHANGE_ALL_GATHER,
                          WEFT_F32, weft_exchange_piece(plan, job, event->unit));
    if (!weft_gathered_is_due(job, event->unit)) return plan_nothing();
    return plan_group(job, event, WEFT_SCOPE_NODE, rank, WEFT_EXCHANGE_ALL_GATHER, WEFT_U8,
                      job->units[event->unit].gather_each);
}

static weft_planned_exchange plan_reduce(const weft_plan *plan, const weft_job_spec *job, const weft_event *event,
                                         int32_t rank) {
    const weft_reduce_rows rows = weft_exchange_reduce(plan, job, event->unit, event->scope, event->leaf >= 0);
    return plan_group(job, event, event->scope, rank,
                      job->view.reduce == WEFT_REDUCE_FAST ? WEFT_EXCHANGE_REDUCE_SCATTER : WEFT_EXCHANGE_ALL_TO_ALL,
                      rows.dtype, rows.row);
}

/* The trained group of an owned unit, from its owner to the one rank that has a copy. */
static weft_planned_exchange plan_copy(const weft_plan *plan, const weft_job_spec *job, int32_t unit, int32_t rank) {
    const weft_group *group = weft_layout_trained(plan->layout, unit);
    const int32_t owner = job->view.placements[unit].owner, other = weft_job_spec_borrower(job, unit);
    if (group == NULL || other < 0 || (rank != owner && rank != other)) return plan_nothing();
    return rank == owner ? plan_message(WEFT_EXCHANGE_SEND, other, group->dtype, group->numel)
                         : plan_message(WEFT_EXCHANGE_RECV, owner, group->dtype, group->numel);
}

static weft_planned_exchange plan_refresh(const weft_plan *plan, const weft_job_spec *job, const weft_event *event,
                                          int32_t rank) {
    const int64_t shard = weft_exchange_piece(plan, job, event->unit) * weft_cut_of(job, event->unit).groups;
    const weft_group *group = weft_layout_trained(plan->layout, event->unit); /* none: nothing is to be refreshed */
    if (job->view.placements[event->unit].parameters == WEFT_OWNED) return plan_copy(plan, job, event->unit, rank);
    return plan_group(job, event, WEFT_SCOPE_NODE, rank, WEFT_EXCHANGE_ALL_GATHER,
                      group == NULL ? WEFT_F32 : group->dtype, shard);
}

static weft_planned_exchange plan_transfer(const weft_job_spec *job, const weft_event *event) {
    const int64_t bytes = event->unit >= 0 ? job->units[event->unit].gradient : job->segments[event->segment].carry;
    const bool is_send = event->kind == WEFT_EVENT_SEND;
    return plan_message(is_send ? WEFT_EXCHANGE_SEND : WEFT_EXCHANGE_RECV, event->peer, WEFT_U8, bytes);
}

weft_planned_exchange weft_exchange_plan(const weft_plan *plan, const weft_job_spec *job, const weft_event *event,
                                         int32_t rank) {
    switch (event->kind) {
    case WEFT_EVENT_GATHER: return plan_gather(plan, job, event, rank);
    case WEFT_EVENT_REDUCE: return plan_reduce(plan, job, event, rank);
    case WEFT_EVENT_REFRESH: return plan_refresh(plan, job, event, rank);
    case WEFT_EVENT_SEND:
    case WEFT_EVENT_RECV: return plan_transfer(job, event);
    default: return plan_nothing();
    }
}
