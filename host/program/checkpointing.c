/* host/program/checkpointing.c: activation checkpointing as a rewriting of events.
 *
 * A segment's tape then lives from its RECOMPUTE to its BACKWARD and no longer through all that lies between FORWARD
 * and BACKWARD; what the segment read stays, as it does anyway. The program may still be wrong: the pass only copies
 * what it does not understand, and leaves it to the checker. */
#include "program/events.h"

#include <stdlib.h>
#include <weft/emit.h>

static bool in_range(const weft_event *event, const weft_job_spec *job) {
    return event->segment >= 0 && event->segment < job->view.n_segments && event->leaf >= 0 &&
           event->leaf < weft_job_spec_leaves(job);
}

/* True if event i should have a RECOMPUTE before it. forward: event of each (segment, leaf), -1: not seen yet. */
static bool wants_recompute(const weft_program *program, const weft_job_spec *job, const int32_t *forward, int32_t i) {
    const weft_event *event = &program->events[i];
    int32_t at = -1;
    if (event->kind != WEFT_EVENT_BACKWARD || !in_range(event, job) || job->segments[event->segment].tape == 0)
        return false;
    at = forward[event->segment * weft_job_spec_leaves(job) + event->leaf];
    return at >= 0 && at < i - 1;
}

static void copy_event(weft_program *to, int32_t *moved, const weft_program *from, int32_t i, bool recompute) {
    const weft_event *event = &from->events[i];
    weft_event *next = &to->events[to->n_events];
    if (recompute) {
        weft_event again = weft_event_of(WEFT_EVENT_RECOMPUTE);
        again.segment = event->segment;
        again.leaf = event->leaf;
        *next++ = again;
        to->n_events++;
    }
    *next = *event;
    moved[i] = to->n_events++;
    if (event->waits >= 0 && event->waits < i) next->waits = moved[event->waits];
}

weft_status weft_program_checkpoint(weft_program *program, const weft_job_spec *job, weft_error *err) {
    const int32_t leaves = weft_job_spec_leaves(job), n_pairs = job->view.n_segments * leaves;
    weft_status status = WEFT_OK;
    weft_program rewritten = {0};
    int32_t *forward = malloc((size_t)n_pairs * sizeof *forward);
    int32_t *moved = malloc(((size_t)program->n_events + 1) * sizeof *moved); /* old index -> new */
    rewritten.capacity = program->n_events * 2 + 1;
    rewritten.events = malloc((size_t)rewritten.capacity * sizeof *rewritten.events);
    if (forward == NULL || moved == NULL || rewritten.events == NULL) {
        status = weft_error_set(err, WEFT_E_MEMORY, "no memory to rewrite %d events", (int)program->n_events);
        goto done;
    }
    for (int32_t i = 0; i < n_pairs; i++) forward[i] = -1;
    for (int32_t i = 0; i < program->n_events; i++) {
        const weft_event *event = &program->events[i];
        if (event->kind == WEFT_EVENT_FORWARD && in_range(event, job))
            forward[event->segment * leaves + event->leaf] = i;
        copy_event(&rewritten, moved, program, i, wants_recompute(program, job, forward, i));
    }
    free(program->events);
    program->events = rewritten.events;
    program->n_events = rewritten.n_events;
    program->capacity = rewritten.capacity;
    rewritten.events = NULL;
done:
    free(rewritten.events);
    free(forward);
    free(moved);
    return status;
}
