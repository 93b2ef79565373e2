/* host/program/execute.h: running a placed program.
 *
 * The executor walks the events, hands each one its slots and calls the table; how an event computes is the caller's.
 * What happened stands in the trace (trace.h). */
#ifndef WEFT_HOST_PROGRAM_EXECUTE_H
#define WEFT_HOST_PROGRAM_EXECUTE_H

#include "program/trace.h"

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
    /* Called behind each event, of whose time in the trace it is a part; NULL: nothing is. */
    weft_status (*settle)(void *context, weft_error *err);
} weft_exec_table;

/* The events [first, end) alone, of which the trace then tells; before and behind them nothing is under way. */
weft_status weft_program_execute_part(const weft_program *program, int32_t first, int32_t end, const weft_job_spec *job,
                                      const weft_exec_table *table, weft_trace *trace, uint64_t step, weft_error *err);

/* One pass over the events of a placed program. An error is given the step and the event's name. A callback that wants
 * to stop in the middle returns WEFT_E_STOPPED. */
weft_status weft_program_execute(const weft_program *program, const weft_job_spec *job, const weft_exec_table *table,
                                 weft_trace *trace, uint64_t step, weft_error *err);

#endif
