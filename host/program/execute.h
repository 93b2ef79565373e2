/* host/program/execute.h: running a placed program, and the trace of what happened.
 *
 * The executor walks the events, hands each one its slots and calls the table; how an event computes is the caller's. A
 * ring buffer records every event with its times. A slot counts as live from the event that first uses it, with the
 * bytes that the work really asked of it so far (in whole lines of 64 bytes), until the executor lets it go after its
 * last event: the run's high-water mark is added up from that, never from the plan's sizes. */
#ifndef WEFT_HOST_PROGRAM_EXECUTE_H
#define WEFT_HOST_PROGRAM_EXECUTE_H

#include "program/program.h"

/* How an event is done. A slot index is into program->slots; -1: none. */
typedef weft_status weft_exec_fn(void *context, const weft_event *event, const weft_event_slots *slots,
                                 weft_error *err);

/* How the caller computes, by weft_event_kind. An event that travels (GATHER, REDUCE, SEND, RECV, REFRESH) is started
 * by its own function and ended by `finish`: at once where its queue is 0, else where its WAIT stands, whose place in
 * the table is not looked at. What no event of the program needs may be NULL. */
typedef struct weft_exec_table {
    void *context;
    void (*begin)(void *context, int32_t index); /* is told of each event before it is looked at; NULL: nobody is */
    weft_exec_fn *run[WEFT_EVENT_REFRESH + 1];
    weft_exec_fn *finish[WEFT_EVENT_REFRESH + 1]; /* NULL: the event has ended when its function returns */
} weft_exec_table;

typedef struct weft_trace_entry {
    uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
    int64_t live;              /* bytes of live slots at the event's end, before any is let go */
    uint64_t step;
    int32_t event; /* index in the program */
    int32_t kind, unit, segment, leaf;
    int32_t reserved;
} weft_trace_entry;

typedef struct weft_trace weft_trace; /* ring of the last N entries */

weft_status weft_trace_create(weft_trace **out, int32_t capacity, weft_error *err);
void weft_trace_destroy(weft_trace *trace);
int64_t weft_trace_high_water(const weft_trace *trace);                          /* of all events since creation */
int32_t weft_trace_count(const weft_trace *trace);                               /* entries held */
const weft_trace_entry *weft_trace_entry_at(const weft_trace *trace, int32_t i); /* 0: the oldest held */
void weft_trace_print(const weft_trace *trace, const weft_program *program, const weft_job_spec *job, FILE *to);

/* What a slot went through in the last pass. */
typedef struct weft_trace_slot {
    int64_t bytes;      /* used, in whole lines of 64; 0: never used */
    int32_t born, died; /* events; -1: never */
} weft_trace_slot;
const weft_trace_slot *weft_trace_slot_at(const weft_trace *trace, int32_t slot); /* NULL: no such slot */

/* Called by the work itself, while its event runs, for each slot that it touches: how many bytes from its start it
 * needs. More than the slot has, or a slot that is not alive at this event, fails the event. slot -1 (none) is fine.
 * [main] */
void weft_trace_use(weft_trace *trace, int32_t slot, int64_t bytes);

/* One pass over the events of a placed program. An error is given the step and the event's name. A callback that wants
 * to stop in the middle returns WEFT_E_STOPPED. */
weft_status weft_program_execute(const weft_program *program, const weft_job_spec *job, const weft_exec_table *table,
                                 weft_trace *trace, uint64_t step, weft_error *err);

#endif
