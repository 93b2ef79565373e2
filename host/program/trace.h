/* host/program/trace.h: the trace's inside, shared by the ring (trace.c) and the executor (execute.c) alone. */
#ifndef WEFT_HOST_PROGRAM_TRACE_H
#define WEFT_HOST_PROGRAM_TRACE_H

#include "program/execute.h"

struct weft_trace {
    weft_trace_entry *ring;
    int32_t capacity;
    int64_t recorded;       /* entries ever; the next one goes to recorded % capacity */
    weft_trace_slot *slots; /* [slot_room], of the pass at hand or the last one */
    int32_t n_slots, slot_room;
    int64_t live, high_water;
    const weft_program *program; /* NULL: no pass is under way */
    int32_t event;
    int32_t bad_slot; /* -1: every use since the event began was right */
    int64_t bad_bytes;
};

/* Begins a pass over the program. Allocates only if no earlier program had as many slots. */
weft_status weft_trace_begin(weft_trace *trace, const weft_program *program, weft_error *err);
void weft_trace_record(weft_trace *trace, uint64_t step, uint64_t start_ns, uint64_t end_ns);
/* Lets go of a slot whose last event is over. */
void weft_trace_release(weft_trace *trace, int32_t slot);
void weft_trace_end(weft_trace *trace);

#endif
