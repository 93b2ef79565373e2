/* host/program/execute.h: running a placed program, and the trace of what happened.
 *
 * The executor walks the events, hands each one its slots and calls the table; how an event computes is the caller's. A ring
 * buffer records every event with its times, and every slot when it came alive and when it died, with the bytes that the
 * event really asked of it: the run's high-water mark is added up from that, never from the plan. */
#ifndef WEFT_HOST_PROGRAM_EXECUTE_H
#define WEFT_HOST_PROGRAM_EXECUTE_H

#include "program/program.h"

/* How the caller computes. A slot index is into program->slots; -1: none. */
typedef struct weft_exec_table {
    void *context;
    weft_status (*count)(void *context, weft_error *err);
    weft_status (*forward)(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err);
    weft_status (*recompute)(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err);
    weft_status (*backward)(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err);
    weft_status (*reduce)(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err);
    weft_status (*norm)(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err);
    weft_status (*step)(void *context, const weft_event *event, const weft_event_slots *slots, weft_error *err);
} weft_exec_table;

typedef struct weft_trace_entry {
    uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
    int64_t live;              /* bytes of live slots while the event ran, as used */
    uint64_t step;
    int32_t event;             /* index in the program */
    int32_t kind, unit, segment, leaf;
    int32_t reserved;
} weft_trace_entry;

typedef struct weft_trace weft_trace; /* ring of the last N entries */

weft_status weft_trace_create(weft_trace **out, int32_t capacity, weft_error *err);
void weft_trace_destroy(weft_trace *trace);
int64_t weft_trace_high_water(const weft_trace *trace); /* of all events since creation */
int32_t weft_trace_count(const weft_trace *trace);      /* entries held */
const weft_trace_entry *weft_trace_entry_at(const weft_trace *trace, int32_t i); /* 0: the oldest held */
void weft_trace_print(const weft_trace *trace, const weft_program *program, const weft_job_spec *job, FILE *to);

/* Called by the work itself for each slot that it touches: how many bytes from its start it needs. */
void weft_trace_use(weft_trace *trace, int32_t slot, int64_t bytes);

/* One pass over the events. An error is given the event's name. `stop` (may be NULL) is looked at between events. */
weft_status weft_program_execute(const weft_program *program, const weft_job_spec *job, const weft_exec_table *table,
                                 weft_trace *trace, uint64_t step, weft_error *err);

#endif
