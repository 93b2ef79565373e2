/* host/program/check/check_fields.c: an event is known in this job, and its fields say something and nothing else. */
#include "program/check/check.h"

/* What a kind of event speaks of. Every other operand must be -1. */
typedef struct shape {
    bool trains; /* belongs to training only */
    bool segment, unit, leaf, peer, waits, what, scope;
    bool queues; /* may be of a queue other than 0 */
} shape;

static const shape shapes[] = {
    [WEFT_EVENT_COUNT] = {.trains = true},
    [WEFT_EVENT_GATHER] = {.unit = true, .what = true, .queues = true},
    [WEFT_EVENT_RELEASE] = {.unit = true},
    [WEFT_EVENT_FORWARD] = {.segment = true, .leaf = true},
    [WEFT_EVENT_RECOMPUTE] = {.trains = true, .segment = true, .leaf = true},
    [WEFT_EVENT_BACKWARD] = {.trains = true, .segment = true, .leaf = true},
    [WEFT_EVENT_REDUCE] = {.trains = true, .unit = true, .leaf = true, .scope = true, .queues = true},
    [WEFT_EVENT_SEND] = {.segment = true, .unit = true, .leaf = true, .peer = true, .what = true, .queues = true},
    [WEFT_EVENT_RECV] = {.segment = true, .unit = true, .leaf = true, .peer = true, .what = true, .queues = true},
    [WEFT_EVENT_WAIT] = {.waits = true},
    [WEFT_EVENT_NORM] = {.trains = true},
    [WEFT_EVENT_STEP] = {.trains = true},
    [WEFT_EVENT_REFRESH] = {.trains = true, .unit = true, .queues = true},
};

static weft_status check_kind(weft_checker *check, const weft_event *event) {
    if (!WEFT_WHOLE(event, weft_event))
        return weft_check_refuse(check, "its struct_size is %u: an event has at least %u bytes",
                                 (unsigned)event->struct_size, (unsigned)WEFT_SIZE_1_0(weft_event));
    if (event->kind < WEFT_EVENT_COUNT || event->kind > WEFT_EVENT_REFRESH)
        return weft_check_refuse(check, "there is no such kind: kinds are %d (COUNT) to %d (REFRESH)",
                                 (int)WEFT_EVENT_COUNT, (int)WEFT_EVENT_REFRESH);
    if (shapes[event->kind].trains && !weft_check_trains(check))
        return weft_check_refuse(
            check, "evaluation and generation run FORWARDs, and what brings parameters and carries to them");
    return WEFT_OK;
}

/* An operand that the kind speaks of must be in [0, n), another must be -1. */
static weft_status check_operand(weft_checker *check, const char *name, int32_t value, bool used, int32_t n) {
    if (!used && value != -1)
        return weft_check_refuse(check, "its %s is %d, but such an event speaks of no %s: it must be -1", name,
                                 (int)value, name);
    if (used && (value < 0 || value >= n))
        return weft_check_refuse(check, "its %s is %d: this job has %d, numbered from 0", name, (int)value, (int)n);
    return WEFT_OK;
}

/* The words that `what` may be by the kind, as bits 1 << weft_what. */
static uint32_t whats_of(const weft_checker *check, int32_t kind) {
    if (kind == WEFT_EVENT_GATHER)
        return 1u << WEFT_WHAT_PARAMETERS | (weft_check_trains(check) ? 1u << WEFT_WHAT_SUM : 0);
    if (!weft_check_trains(check)) return 1u << WEFT_WHAT_CARRY;
    return 1u << WEFT_WHAT_CARRY | 1u << WEFT_WHAT_CARRY_GRADIENT | 1u << WEFT_WHAT_LEAF_GRADIENT;
}

static weft_status check_what(weft_checker *check, const weft_event *event) {
    const bool used = shapes[event->kind].what;
    if (!used) return check_operand(check, "what", event->what, false, 0);
    if (event->what < 1 || event->what > WEFT_WHAT_LEAF_GRADIENT ||
        (whats_of(check, event->kind) >> event->what & 1u) == 0)
        return weft_check_refuse(check, "its what is %d, which no %s carries here", (int)event->what,
                                 weft_event_kind_name(event->kind));
    return WEFT_OK;
}

/* Of a SEND or RECV, one of segment and unit has a meaning; of a REDUCE, the second hop names no leaf. */
static weft_status check_operands(weft_checker *check, const weft_event *event) {
    const shape *speaks = &shapes[event->kind];
    const weft_strategy_job *view = &check->job->view;
    const bool part = speaks->peer && event->what == WEFT_WHAT_LEAF_GRADIENT;
    const bool second = event->kind == WEFT_EVENT_REDUCE && event->leaf == -1;
    weft_status status = check_what(check, event);
    if (status == WEFT_OK)
        status = check_operand(check, "segment", event->segment, speaks->segment && !part, view->n_segments);
    if (status == WEFT_OK)
        status = check_operand(check, "unit", event->unit, speaks->unit && (part || !speaks->peer), view->n_units);
    if (status == WEFT_OK) status = check_operand(check, "leaf", event->leaf, speaks->leaf && !second, check->leaves);
    if (status == WEFT_OK) status = check_operand(check, "peer", event->peer, speaks->peer, check->world);
    if (status == WEFT_OK) status = check_operand(check, "waits", event->waits, speaks->waits, check->at);
    if (status == WEFT_OK && !speaks->scope) status = check_operand(check, "scope", event->scope, false, 0);
    if (status == WEFT_OK && speaks->scope && (event->scope < WEFT_SCOPE_RANK || event->scope > WEFT_SCOPE_ACROSS))
        status = weft_check_refuse(check, "its scope is %d: scopes are %d (RANK) to %d (ACROSS)", (int)event->scope,
                                   (int)WEFT_SCOPE_RANK, (int)WEFT_SCOPE_ACROSS);
    return status;
}

static weft_status check_queue(weft_checker *check, const weft_event *event) {
    const int32_t last = shapes[event->kind].queues ? 3 : 0;
    if (event->queue < 0 || event->queue > last)
        return weft_check_refuse(check,
                                 last == 0 ? "its queue is %d: such an event ends in its place, in queue 0"
                                           : "its queue is %d: queues are 0 to 3",
                                 (int)event->queue);
    if (event->kind == WEFT_EVENT_SEND && event->queue == 0)
        return weft_check_refuse(check,
                                 "a SEND is of queue 1 to 3, with a WAIT: it may end only when its RECV has started");
    return WEFT_OK;
}

weft_status weft_check_fields(weft_checker *check, const weft_event *event) {
    weft_status status = check_kind(check, event);
    if (status == WEFT_OK) status = check_operands(check, event);
    if (status == WEFT_OK) status = check_queue(check, event);
    if (status == WEFT_OK && (event->flags != 0 || event->reserved != 0))
        status = weft_check_refuse(check, "its flags are %u and its reserved field is %d: both must be 0",
                                   (unsigned)event->flags, (int)event->reserved);
    return status;
}
