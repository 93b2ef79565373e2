/* host/program/check.c: the proof that a program is what the job asks for; program.h says what is proved.
 *
 * One state machine per rank walks the events and remembers which event did what. An event is judged in three steps: is
 * it known here, do its fields say something and nothing else, has all that it needs happened and has it not happened
 * before. At the end nothing may be missing. */
#include "program/job.h"

#include <stdlib.h>

typedef struct rank_state {
    const weft_program *program;
    const weft_job_spec *job;
    weft_error *err;
    int32_t leaves;
    int32_t at;                              /* index of the event that is judged */
    int32_t count, norm, step;               /* the event that did it; -1: none yet, as for all below */
    int32_t *forward, *recompute, *backward; /* [n_segments][leaves] */
    int32_t *reduce;                         /* [n_units][leaves] */
    int32_t *owing;                          /* [n_units][leaves] BACKWARDs that read the unit and are still to come */
    int32_t *reached;                        /* [n_units] leaf of the latest BACKWARD that read the unit */
    int32_t *storage;
} rank_state;

/* What a kind of event speaks of. Every other operand must be -1. */
typedef struct shape {
    bool trains; /* belongs to training only */
    bool segment, unit, leaf;
    const char *alone; /* why there is none in a world of one */
} shape;

static const shape shapes[] = {
    [WEFT_EVENT_COUNT] = {.trains = true},
    [WEFT_EVENT_GATHER] = {.alone = "nothing is gathered in a world of one rank: the unit lies here whole"},
    [WEFT_EVENT_RELEASE] = {.alone = "nothing is gathered in a world of one rank, so no gathered copy can be released"},
    [WEFT_EVENT_FORWARD] = {.segment = true, .leaf = true},
    [WEFT_EVENT_RECOMPUTE] = {.trains = true, .segment = true, .leaf = true},
    [WEFT_EVENT_BACKWARD] = {.trains = true, .segment = true, .leaf = true},
    [WEFT_EVENT_REDUCE] = {.trains = true, .unit = true, .leaf = true},
    [WEFT_EVENT_SEND] = {.alone = "a world of one rank has no peer to send to"},
    [WEFT_EVENT_RECV] = {.alone = "a world of one rank has no peer to receive from"},
    [WEFT_EVENT_WAIT] = {.alone = "nothing is under way in a world of one rank, so there is nothing to wait for"},
    [WEFT_EVENT_NORM] = {.trains = true},
    [WEFT_EVENT_STEP] = {.trains = true},
    [WEFT_EVENT_REFRESH] = {.alone = "a world of one rank has no copies that STEP leaves stale"},
};

static weft_status refuse(rank_state *state, const char *format, ...) WEFT_PRINTF(2, 3);
static weft_status refuse(rank_state *state, const char *format, ...) {
    char event[256], reason[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    weft_event_describe(event, sizeof event, &state->program->events[state->at], state->job);
    return weft_error_set(state->err, WEFT_E_PLUGIN, "event %d, %s: %s", (int)state->at, event, reason);
}

static const char *segment_name(const rank_state *state, int32_t s) {
    return state->job->view.segments[s].name;
}

static const char *unit_name(const rank_state *state, int32_t u) {
    return state->job->view.units[u].name;
}

/* An operand that the kind speaks of must be in [0, n), another must be -1. */
static weft_status judge_operand(rank_state *state, const char *name, int32_t value, bool used, int32_t n) {
    if (!used && value != -1)
        return refuse(state, "its %s is %d, but such an event speaks of no %s: it must be -1", name, (int)value, name);
    if (used && (value < 0 || value >= n))
        return refuse(state, "its %s is %d: this job has %d, numbered from 0", name, (int)value, (int)n);
    return WEFT_OK;
}

static weft_status judge_fields(rank_state *state, const weft_event *event) {
    const shape *speaks = &shapes[event->kind];
    weft_status status = judge_operand(state, "segment", event->segment, speaks->segment, state->job->view.n_segments);
    if (status == WEFT_OK) status = judge_operand(state, "unit", event->unit, speaks->unit, state->job->view.n_units);
    if (status == WEFT_OK) status = judge_operand(state, "leaf", event->leaf, speaks->leaf, state->leaves);
    if (status == WEFT_OK) status = judge_operand(state, "peer", event->peer, false, 0);
    if (status != WEFT_OK) return status;
    if (event->queue != 0)
        return refuse(state, "its queue is %d: a world of one rank has nothing to exchange and uses queue 0 alone",
                      (int)event->queue);
    if (event->after < -1 || event->after >= state->at)
        return refuse(state, "it comes after event %d, which is not an earlier one: -1 to %d are allowed",
                      (int)event->after, (int)state->at - 1);
    if (event->flags != 0 || event->reserved != 0)
        return refuse(state, "its flags are %u and its reserved field is %d: both must be 0", (unsigned)event->flags,
                      (int)event->reserved);
    return WEFT_OK;
}

static weft_status judge_kind(rank_state *state, const weft_event *event) {
    const bool training = state->job->view.mode == WEFT_MODE_TRAIN;
    if (event->struct_size < sizeof *event)
        return refuse(state, "its struct_size is %u: an event has %zu bytes", (unsigned)event->struct_size,
                      sizeof *event);
    if (event->kind < WEFT_EVENT_COUNT || event->kind > WEFT_EVENT_REFRESH)
        return refuse(state, "there is no such kind: kinds are %d (COUNT) to %d (REFRESH)", (int)WEFT_EVENT_COUNT,
                      (int)WEFT_EVENT_REFRESH);
    if (shapes[event->kind].alone != NULL) return refuse(state, "%s", shapes[event->kind].alone);
    if (shapes[event->kind].trains && !training)
        return refuse(state, "a leaf of evaluation or generation has FORWARDs alone");
    if (state->step >= 0) return refuse(state, "it follows STEP, event %d, which must be the last", (int)state->step);
    return WEFT_OK;
}

/* A thing that may happen once: fails if *done has an event, else notes this one. */
static weft_status once(rank_state *state, int32_t *done) {
    if (*done >= 0) return refuse(state, "event %d has done this already: it must come once", (int)*done);
    *done = state->at;
    return WEFT_OK;
}

static int32_t pair(const rank_state *state, int32_t row, int32_t leaf) {
    return row * state->leaves + leaf;
}

static weft_status judge_forward(rank_state *state, const weft_event *event) {
    const int32_t s = event->segment, m = event->leaf;
    if (s > 0 && state->forward[pair(state, s - 1, m)] < 0)
        return refuse(state, "segment %s, whose carry it reads, has had no FORWARD for leaf %d",
                      segment_name(state, s - 1), (int)m);
    return once(state, &state->forward[pair(state, s, m)]);
}

static weft_status judge_recompute(rank_state *state, const weft_event *event) {
    const int32_t s = event->segment, m = event->leaf, i = pair(state, s, m);
    if (!state->job->activation_checkpointing)
        return refuse(state,
                      "activation checkpointing is off, so FORWARD kept the tape and nothing is to be recomputed");
    if (!state->job->segments[s].has_backward)
        return refuse(state, "the segment has no BACKWARD that a tape could serve");
    if (state->forward[i] < 0) return refuse(state, "its FORWARD for leaf %d must come before", (int)m);
    if (state->backward[i] >= 0)
        return refuse(state, "its BACKWARD for leaf %d has already run, as event %d", (int)m, (int)state->backward[i]);
    return once(state, &state->recompute[i]);
}

/* Notes for each unit that the segment reads that one BACKWARD less is owing. */
static weft_status note_units(rank_state *state, const weft_event *event) {
    const weft_segment_view *view = &state->job->view.segments[event->segment];
    for (int32_t i = 0; i < view->n_units; i++) {
        const int32_t u = view->units[i];
        if (!weft_job_spec_trains(state->job, u)) continue;
        if (state->reached[u] > event->leaf)
            return refuse(state, "unit %s has already had a BACKWARD for leaf %d: its BACKWARDs run in leaf order",
                          unit_name(state, u), (int)state->reached[u]);
        state->reached[u] = event->leaf;
        state->owing[pair(state, u, event->leaf)]--;
    }
    return WEFT_OK;
}

static weft_status judge_backward(rank_state *state, const weft_event *event) {
    const int32_t s = event->segment, m = event->leaf, last = state->job->view.n_segments - 1;
    weft_status status = WEFT_OK;
    if (!state->job->segments[s].has_backward)
        return refuse(state, "the segment has no BACKWARD: nothing at or below it is trained");
    if (state->count < 0) return refuse(state, "COUNT must come before the first BACKWARD");
    if (state->forward[pair(state, s, m)] < 0)
        return refuse(state, "there is no tape: its FORWARD for leaf %d must come before", (int)m);
    if (s < last && state->backward[pair(state, s + 1, m)] < 0)
        return refuse(state, "segment %s, which hands it the gradient, has had no BACKWARD for leaf %d",
                      segment_name(state, s + 1), (int)m);
    status = once(state, &state->backward[pair(state, s, m)]);
    return status == WEFT_OK ? note_units(state, event) : status;
}

/* Name of a segment that reads the unit and has had no BACKWARD for this leaf. */
static const char *owing_segment(const rank_state *state, int32_t u, int32_t m) {
    for (int32_t s = state->job->view.n_segments - 1; s >= 0; s--)
        if (state->job->segments[s].has_backward && weft_job_spec_reads(state->job, s, u) &&
            state->backward[pair(state, s, m)] < 0)
            return segment_name(state, s);
    return "?";
}

static weft_status judge_reduce(rank_state *state, const weft_event *event) {
    const int32_t u = event->unit, m = event->leaf;
    if (!weft_job_spec_trains(state->job, u)) return refuse(state, "the unit is frozen and has no gradient");
    if (state->owing[pair(state, u, m)] > 0)
        return refuse(state, "segment %s reads the unit and has had no BACKWARD for leaf %d",
                      owing_segment(state, u, m), (int)m);
    if (m > 0 && state->reduce[pair(state, u, m - 1)] < 0)
        return refuse(state, "the sum is taken in leaf order, and the unit has had no REDUCE for leaf %d", (int)m - 1);
    return once(state, &state->reduce[pair(state, u, m)]);
}

static weft_status judge_norm(rank_state *state) {
    if (state->count < 0) return refuse(state, "COUNT must come before");
    for (int32_t u = 0; u < state->job->view.n_units; u++)
        for (int32_t m = 0; m < state->leaves && weft_job_spec_trains(state->job, u); m++)
            if (state->reduce[pair(state, u, m)] < 0)
                return refuse(state, "unit %s has had no REDUCE for leaf %d: the norm is of the whole sum",
                              unit_name(state, u), (int)m);
    return once(state, &state->norm);
}

static weft_status judge_step(rank_state *state) {
    if (state->norm < 0) return refuse(state, "NORM must come before, once all leaf gradients are summed");
    return once(state, &state->step);
}

static weft_status judge_event(rank_state *state, const weft_event *event) {
    weft_status status = judge_kind(state, event);
    if (status == WEFT_OK) status = judge_fields(state, event);
    if (status != WEFT_OK) return status;
    switch (event->kind) {
    case WEFT_EVENT_COUNT: return once(state, &state->count);
    case WEFT_EVENT_FORWARD: return judge_forward(state, event);
    case WEFT_EVENT_RECOMPUTE: return judge_recompute(state, event);
    case WEFT_EVENT_BACKWARD: return judge_backward(state, event);
    case WEFT_EVENT_REDUCE: return judge_reduce(state, event);
    case WEFT_EVENT_NORM: return judge_norm(state);
    default: return judge_step(state);
    }
}

static weft_status missing(rank_state *state, const char *kind, const char *segment, int32_t leaf) {
    return weft_error_set(state->err, WEFT_E_PLUGIN, "the program ends after %d events without %s %s leaf %d",
                          (int)state->program->n_events, kind, segment, (int)leaf);
}

static weft_status judge_end(rank_state *state) {
    for (int32_t m = 0; m < state->leaves; m++)
        for (int32_t s = 0; s < state->job->view.n_segments; s++) {
            if (state->forward[pair(state, s, m)] < 0) return missing(state, "FORWARD", segment_name(state, s), m);
            if (weft_job_spec_backward(state->job, s) && state->backward[pair(state, s, m)] < 0)
                return missing(state, "BACKWARD", segment_name(state, s), m);
        }
    if (state->job->view.mode == WEFT_MODE_TRAIN && state->step < 0)
        return weft_error_set(state->err, WEFT_E_PLUGIN, "the program ends after %d events without STEP",
                              (int)state->program->n_events);
    return WEFT_OK;
}

static void count_owing(rank_state *state) {
    for (int32_t s = 0; s < state->job->view.n_segments; s++) {
        const weft_segment_view *view = &state->job->view.segments[s];
        for (int32_t i = 0; weft_job_spec_backward(state->job, s) && i < view->n_units; i++)
            for (int32_t m = 0; m < state->leaves; m++) state->owing[pair(state, view->units[i], m)]++;
    }
}

static weft_status state_init(rank_state *state, const weft_program *program, const weft_job_spec *job,
                              weft_error *err) {
    const size_t leaves = (size_t)weft_job_spec_leaves(job);
    const size_t segments = (size_t)job->view.n_segments * leaves, units = (size_t)job->view.n_units * leaves;
    const size_t total = 3 * segments + 2 * units + (size_t)job->view.n_units;
    state->program = program;
    state->job = job;
    state->err = err;
    state->leaves = (int32_t)leaves;
    state->count = state->norm = state->step = -1;
    state->storage = malloc(total * sizeof *state->storage);
    if (state->storage == NULL)
        return weft_error_set(err, WEFT_E_MEMORY, "no memory to check %d events", (int)program->n_events);
    for (size_t i = 0; i < total; i++) state->storage[i] = -1;
    state->forward = state->storage;
    state->recompute = state->forward + segments;
    state->backward = state->recompute + segments;
    state->reduce = state->backward + segments;
    state->owing = state->reduce + units;
    state->reached = state->owing + units;
    memset(state->owing, 0, units * sizeof *state->owing);
    count_owing(state);
    return WEFT_OK;
}

weft_status weft_program_check(const weft_program *program, const weft_job_spec *job, weft_error *err) {
    rank_state state = {0};
    weft_status status = weft_job_spec_check(job, err);
    if (status != WEFT_OK) return status;
    if (job->view.world != 1)
        return weft_error_set(err, WEFT_E_UNSUPPORTED, "programs of a world of %d ranks cannot be checked, only of one",
                              (int)job->view.world);
    if (job->view.replicas != 1)
        return weft_error_set(err, WEFT_E_HOST, "a job of one rank has one replica, not %d", (int)job->view.replicas);
    if (program->mode != job->view.mode || program->leaves != weft_job_spec_leaves(job))
        return weft_error_set(err, WEFT_E_HOST,
                              "a program of mode %d and %d leaves is checked against a job of mode %d and %d",
                              (int)program->mode, (int)program->leaves, (int)job->view.mode,
                              (int)weft_job_spec_leaves(job));
    status = state_init(&state, program, job, err);
    for (state.at = 0; status == WEFT_OK && state.at < program->n_events; state.at++)
        status = judge_event(&state, &program->events[state.at]);
    if (status == WEFT_OK) status = judge_end(&state);
    free(state.storage);
    return status;
}
