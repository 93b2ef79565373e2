/* host/program/price.c: a placed program added up. */
#include "program/program.h"

/* Seconds of an event; a negative number: nobody knows. */
static double seconds_of(const weft_event *event, const weft_job_spec *job) {
    double seconds = 0;
    switch (event->kind) {
    case WEFT_EVENT_FORWARD: seconds = job->segments[event->segment].forward_seconds; break;
    case WEFT_EVENT_RECOMPUTE: seconds = job->segments[event->segment].forward_seconds; break;
    case WEFT_EVENT_BACKWARD: seconds = job->segments[event->segment].backward_seconds; break;
    default: return 0;
    }
    return seconds > 0 ? seconds : -1;
}

/* One queue runs its events one after the other. One unknown makes the sum unknown. */
static double simulate(const weft_program *program, const weft_job_spec *job) {
    double sum = 0;
    for (int32_t i = 0; i < program->n_events; i++) {
        const double seconds = seconds_of(&program->events[i], job);
        if (seconds < 0) return 0;
        sum += seconds;
    }
    return sum;
}

void weft_program_price(weft_price *out, const weft_program *program, const weft_job_spec *job) {
    memset(out, 0, sizeof *out);
    out->arena = program->arena;
    out->peak = program->peak;
    out->peak_event = program->peak_event;
    out->seconds = simulate(program, job);
    for (int32_t i = 0; i < program->n_slots; i++) {
        const weft_slot *slot = &program->slots[i];
        if (slot->offset >= 0 && slot->first <= program->peak_event && program->peak_event <= slot->last)
            out->category[slot->category] += slot->bytes;
    }
}
