/* host/program/events.c: the list of events as memory: made, grown by emit, copied, freed. */
#include "program/events.h"

#include <stdlib.h>

#define MOST_EVENTS (1 << 26) /* 64 Mi: a strategy that emits more has gone astray */

weft_status weft_program_create(weft_program **out, const weft_job_spec *job, int32_t rank, weft_error *err) {
    weft_program *program = calloc(1, sizeof *program);
    if (program == NULL) return weft_error_set(err, WEFT_E_MEMORY, "no memory for a step program");
    program->mode = job->view.mode;
    program->rank = rank;
    program->leaves = weft_job_spec_leaves(job);
    program->peak_event = program->foreign_event = -1;
    *out = program;
    return WEFT_OK;
}

static bool reserve_event(weft_program *program) {
    const int32_t capacity = program->capacity == 0 ? 64 : program->capacity * 2;
    weft_event *events = NULL;
    if (program->capacity >= MOST_EVENTS) return false;
    events = realloc(program->events, (size_t)capacity * sizeof *events);
    if (events == NULL) return false;
    program->events = events;
    program->capacity = capacity;
    return true;
}

/* The checker judges what was given; that an event asks for more than this host knows is seen here alone. */
int32_t weft_program_emit(weft_program *program, const weft_event *event) {
    if (program->most_events > 0 && program->n_events >= program->most_events) {
        program->too_many = true;
        return -1;
    }
    if (program->n_events == program->capacity && !reserve_event(program)) {
        program->out_of_memory = true;
        return -1;
    }
    if (!weft_struct_take(&program->events[program->n_events], sizeof *event, event) && program->foreign_event < 0)
        program->foreign_event = program->n_events;
    return program->n_events++;
}

weft_status weft_program_copy(weft_program **out, const weft_program *program, weft_error *err) {
    const size_t bytes = (size_t)program->n_events * sizeof *program->events;
    weft_program *copy = calloc(1, sizeof *copy);
    if (copy != NULL) copy->events = malloc(bytes + 1);
    if (copy == NULL || copy->events == NULL) {
        free(copy);
        return weft_error_set(err, WEFT_E_MEMORY, "no memory for a copy of %d events", (int)program->n_events);
    }
    if (bytes > 0) memcpy(copy->events, program->events, bytes);
    copy->n_events = copy->capacity = program->n_events;
    copy->mode = program->mode;
    copy->rank = program->rank;
    copy->leaves = program->leaves;
    copy->peak_event = copy->foreign_event = -1;
    *out = copy;
    return WEFT_OK;
}

void weft_program_unplace(weft_program *program) {
    free(program->slots);
    free(program->event_slots);
    free(program->event_gradients);
    free(program->by_last);
    program->slots = NULL;
    program->event_slots = NULL;
    program->event_gradients = NULL;
    program->by_last = NULL;
    program->n_slots = 0;
    program->arena = program->peak = 0;
    program->peak_event = -1;
}

void weft_program_destroy(weft_program *program) {
    if (program == NULL) return;
    weft_program_unplace(program);
    free(program->events);
    free(program);
}
