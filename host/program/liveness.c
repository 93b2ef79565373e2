/* host/program/liveness.c: which buffers a checked program needs, from when to when, and where they lie.
 *
 * Slots follow from the events alone: a pass that moves an event moves lifetimes with it. The rules stand beside
 * weft_slot_kind in program.h. */
#include "memory/place.h"
#include "program/events.h"

#include <stdlib.h>

typedef struct planner {
    weft_program *program;
    const weft_job_spec *job;
    int32_t leaves;
    bool sole_leaf;                          /* the one leaf gradient is the sum itself */
    int32_t *forward, *recompute, *backward; /* [n_segments][leaves] event, or -1 */
    int32_t *reduce;                         /* [n_units][leaves] */
    int32_t *storage;
} planner;

static weft_status out_of_memory(const weft_program *program, weft_error *err) {
    return weft_error_set(err, WEFT_E_MEMORY, "no memory to plan the buffers of %d events", (int)program->n_events);
}

static int32_t pair(const planner *p, int32_t row, int32_t leaf) {
    return row * p->leaves + leaf;
}

static weft_status find_events(planner *p, weft_error *err) {
    const size_t segments = (size_t)(p->job->view.n_segments * p->leaves);
    const size_t total = 3 * segments + (size_t)(p->job->view.n_units * p->leaves);
    p->storage = malloc(total * sizeof *p->storage);
    if (p->storage == NULL) return out_of_memory(p->program, err);
    for (size_t i = 0; i < total; i++) p->storage[i] = -1;
    p->forward = p->storage;
    p->recompute = p->forward + segments;
    p->backward = p->recompute + segments;
    p->reduce = p->backward + segments;
    for (int32_t i = 0; i < p->program->n_events; i++) {
        const weft_event *event = &p->program->events[i];
        switch (event->kind) {
        case WEFT_EVENT_FORWARD: p->forward[pair(p, event->segment, event->leaf)] = i; break;
        case WEFT_EVENT_RECOMPUTE: p->recompute[pair(p, event->segment, event->leaf)] = i; break;
        case WEFT_EVENT_BACKWARD: p->backward[pair(p, event->segment, event->leaf)] = i; break;
        case WEFT_EVENT_REDUCE: p->reduce[pair(p, event->unit, event->leaf)] = i; break;
        default: break;
        }
    }
    return WEFT_OK;
}

/* Room for as many slots and rows of gradients as there can be. */
static weft_status make_room(planner *p, weft_error *err) {
    weft_program *program = p->program;
    const size_t events = (size_t)program->n_events, units = (size_t)p->job->view.n_units;
    const size_t most = (size_t)p->leaves * (1 + 3 * (size_t)p->job->view.n_segments + units) + events;
    size_t rows = 1; /* the first, all -1, serves the events without gradients */
    for (int32_t i = 0; i < program->n_events; i++) {
        const int32_t kind = program->events[i].kind;
        if (kind == WEFT_EVENT_BACKWARD || kind == WEFT_EVENT_REDUCE) rows++;
    }
    program->slots = malloc(most * sizeof *program->slots);
    program->by_last = malloc(most * sizeof *program->by_last);
    program->event_slots = malloc(events * sizeof *program->event_slots);
    program->event_gradients = malloc((rows * units + 1) * sizeof *program->event_gradients);
    if (program->slots == NULL || program->by_last == NULL || program->event_slots == NULL ||
        program->event_gradients == NULL)
        return out_of_memory(program, err);
    for (size_t i = 0; i < rows * units; i++) program->event_gradients[i] = -1;
    rows = 1;
    for (int32_t i = 0; i < program->n_events; i++) {
        const int32_t kind = program->events[i].kind;
        const bool own = kind == WEFT_EVENT_BACKWARD || kind == WEFT_EVENT_REDUCE;
        const weft_event_slots none = {-1, -1, -1, -1,
                                       -1, -1, -1, program->event_gradients + (own ? rows++ : 0) * units};
        program->event_slots[i] = none;
    }
    return WEFT_OK;
}

static int32_t category_of(int32_t kind) {
    if (kind == WEFT_SLOT_LEAF_GRADIENT) return WEFT_MEMORY_GRADIENTS;
    return kind == WEFT_SLOT_WORK ? WEFT_MEMORY_WORKSPACE : WEFT_MEMORY_ACTIVATIONS;
}

/* Returns the slot's index; -1 where it needs no bytes. */
static int32_t add_slot(planner *p, int32_t kind, int32_t unit, int32_t segment, int32_t leaf, int32_t first,
                        int32_t last, int64_t bytes) {
    const weft_slot slot = {kind, category_of(kind), unit, segment, leaf, first, last, weft_place_round(bytes), -1};
    if (bytes == 0) return -1;
    p->program->slots[p->program->n_slots] = slot;
    return p->program->n_slots++;
}

static void plan_leaf(planner *p, int32_t m) {
    weft_event_slots *of = p->program->event_slots;
    int32_t first = INT32_MAX, last = -1, slot = -1;
    for (int32_t i = 0; i < p->program->n_events; i++) {
        const weft_event *event = &p->program->events[i];
        if (event->segment < 0 || event->leaf != m) continue;
        if (i < first) first = i;
        last = i;
    }
    slot = add_slot(p, WEFT_SLOT_LEAF, -1, -1, m, first, last, p->job->leaf_bytes);
    for (int32_t i = first; i <= last; i++)
        if (p->program->events[i].segment >= 0 && p->program->events[i].leaf == m) of[i].leaf = slot;
}

/* Out of segment s; read by all that runs segment s + 1, but for a BACKWARD that has on its tape all that it needs. */
static void plan_carry(planner *p, int32_t s, int32_t m) {
    weft_event_slots *of = p->program->event_slots;
    const int32_t made = p->forward[pair(p, s, m)];
    int32_t readers[3] = {-1, -1, -1}, last = made, slot = -1;
    if (s + 1 < p->job->view.n_segments) {
        readers[0] = p->forward[pair(p, s + 1, m)];
        readers[1] = p->recompute[pair(p, s + 1, m)];
        if (p->job->segments[s + 1].backward_reads_carry) readers[2] = p->backward[pair(p, s + 1, m)];
    }
    for (int i = 0; i < 3; i++)
        if (readers[i] > last) last = readers[i];
    slot = add_slot(p, WEFT_SLOT_CARRY, -1, s, m, made, last, p->job->segments[s].carry);
    of[made].carry_out = slot;
    for (int i = 0; i < 3; i++)
        if (readers[i] >= 0) of[readers[i]].carry_in = slot;
}

static void plan_tape(planner *p, int32_t s, int32_t m) {
    weft_event_slots *of = p->program->event_slots;
    const int32_t again = p->recompute[pair(p, s, m)], used = p->backward[pair(p, s, m)];
    const int32_t made = again >= 0 ? again : p->forward[pair(p, s, m)];
    if (used < 0) return;
    of[made].tape = add_slot(p, WEFT_SLOT_TAPE, -1, s, m, made, used, p->job->segments[s].tape);
    of[used].tape = of[made].tape;
}

/* Of what came out of segment s: the carry's size, from the BACKWARD above to the segment's own. */
static void plan_carry_gradient(planner *p, int32_t s, int32_t m) {
    weft_event_slots *of = p->program->event_slots;
    const int32_t used = p->backward[pair(p, s, m)];
    int32_t made = -1;
    if (used < 0 || s + 1 == p->job->view.n_segments) return;
    made = p->backward[pair(p, s + 1, m)];
    of[made].d_carry_in = add_slot(p, WEFT_SLOT_CARRY_GRADIENT, -1, s, m, made, used, p->job->segments[s].carry);
    of[used].d_carry_out = of[made].d_carry_in;
}

/* The row of event i is writable here and nowhere else. */
static int32_t *gradient_row(planner *p, int32_t i) {
    return p->program->event_gradients + (p->program->event_slots[i].gradients - p->program->event_gradients);
}

static void plan_leaf_gradient(planner *p, int32_t u, int32_t m) {
    const int32_t last = p->reduce[pair(p, u, m)];
    int32_t first = last, slot = -1;
    if (last < 0) return;
    for (int32_t s = 0; s < p->job->view.n_segments; s++) {
        const int32_t at = p->backward[pair(p, s, m)];
        if (at >= 0 && at < first && weft_job_spec_reads(p->job, s, u)) first = at;
    }
    slot = add_slot(p, WEFT_SLOT_LEAF_GRADIENT, u, -1, m, first, last, p->job->units[u].gradient);
    gradient_row(p, last)[u] = slot;
    for (int32_t s = 0; s < p->job->view.n_segments; s++) {
        const int32_t at = p->backward[pair(p, s, m)];
        if (at >= 0 && weft_job_spec_reads(p->job, s, u)) gradient_row(p, at)[u] = slot;
    }
}

static int64_t work_bytes(const planner *p, const weft_event *event) {
    const weft_segment_sizes *sizes = event->segment >= 0 ? &p->job->segments[event->segment] : NULL;
    switch (event->kind) {
    case WEFT_EVENT_FORWARD:
        return p->recompute[pair(p, event->segment, event->leaf)] >= 0 ? sizes->forward_work_untaped
                                                                       : sizes->forward_work;
    case WEFT_EVENT_RECOMPUTE: return sizes->recompute_work;
    case WEFT_EVENT_BACKWARD: return sizes->backward_work;
    case WEFT_EVENT_REDUCE: return p->job->reduce_work;
    case WEFT_EVENT_NORM: return p->job->step_work;
    case WEFT_EVENT_STEP: return p->job->step_work;
    default: return 0;
    }
}

static void plan_slots(planner *p) {
    for (int32_t m = 0; m < p->leaves; m++) {
        plan_leaf(p, m);
        for (int32_t s = 0; s < p->job->view.n_segments; s++) {
            plan_carry(p, s, m);
            plan_tape(p, s, m);
            plan_carry_gradient(p, s, m);
        }
        for (int32_t u = 0; u < p->job->view.n_units; u++) plan_leaf_gradient(p, u, m);
    }
    for (int32_t i = 0; i < p->program->n_events; i++) {
        const weft_event *event = &p->program->events[i];
        p->program->event_slots[i].work =
            add_slot(p, WEFT_SLOT_WORK, -1, event->segment, event->leaf, i, i, work_bytes(p, event));
    }
}

/* Counting sort by last event, so that the executor finds what dies without looking at every slot. */
static weft_status sort_by_last(weft_program *program, weft_error *err) {
    int32_t *start = calloc((size_t)program->n_events + 1, sizeof *start);
    if (start == NULL) return out_of_memory(program, err);
    for (int32_t i = 0; i < program->n_slots; i++) start[program->slots[i].last + 1]++;
    for (int32_t i = 0; i < program->n_events; i++) start[i + 1] += start[i];
    for (int32_t i = 0; i < program->n_slots; i++) program->by_last[start[program->slots[i].last]++] = i;
    free(start);
    return WEFT_OK;
}

static weft_status place_slots(planner *p, weft_error *err) {
    weft_program *program = p->program;
    weft_packing packing = {0, 0, -1, 0};
    weft_status status = WEFT_OK;
    int32_t n = 0;
    weft_interval *items = malloc(((size_t)program->n_slots + 1) * sizeof *items);
    if (items == NULL) return out_of_memory(program, err);
    for (int32_t i = 0; i < program->n_slots; i++) {
        const weft_slot *slot = &program->slots[i];
        const weft_interval item = {slot->bytes, slot->first, slot->last, -1};
        if (slot->kind == WEFT_SLOT_LEAF_GRADIENT && p->sole_leaf) continue;
        items[n++] = item;
    }
    status = weft_intervals_place(items, &packing, n, err);
    n = 0;
    for (int32_t i = 0; i < program->n_slots && status == WEFT_OK; i++)
        if (program->slots[i].kind != WEFT_SLOT_LEAF_GRADIENT || !p->sole_leaf)
            program->slots[i].offset = items[n++].offset;
    program->arena = packing.arena;
    program->peak = packing.peak;
    program->peak_event = packing.peak_time;
    free(items);
    return status;
}

weft_status weft_program_place(weft_program *program, const weft_job_spec *job, weft_error *err) {
    planner p = {0};
    weft_status status = weft_program_check(program, job, err);
    if (status != WEFT_OK) return status;
    weft_program_unplace(program);
    p.program = program;
    p.job = job;
    p.leaves = weft_job_spec_leaves(job);
    p.sole_leaf = (int64_t)job->view.leaves * job->view.replicas == 1;
    status = find_events(&p, err);
    if (status == WEFT_OK) status = make_room(&p, err);
    if (status == WEFT_OK) plan_slots(&p);
    if (status == WEFT_OK) status = sort_by_last(program, err);
    if (status == WEFT_OK) status = place_slots(&p, err);
    if (status != WEFT_OK) weft_program_unplace(program);
    free(p.storage);
    return status;
}
