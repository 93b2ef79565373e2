/* host/program/trace.h: what happened while a program ran.
 *
 * A ring buffer records every instruction with its times. A slot counts as live from the instruction that first uses
 * it, with the bytes that the work really asked of it so far (in whole lines of 64 bytes), until the executor lets
 * it go after its last instruction: the run's high-water mark is added up from that, never from the plan's sizes. */
#ifndef WEFT_HOST_PROGRAM_TRACE_H
#define WEFT_HOST_PROGRAM_TRACE_H

#include "program/program.h"

typedef struct weft_trace_entry {
    uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
    int64_t live;              /* bytes of live slots at the instruction's end, before any is let go */
    uint64_t step;
    int32_t instruction; /* index in the program */
    int32_t kind, unit, segment, micro_batch;
    int32_t reserved;
} weft_trace_entry;

typedef struct weft_trace weft_trace; /* ring of the last N entries */

weft_status weft_trace_create(weft_trace **out, int32_t capacity, weft_error *err);
void weft_trace_destroy(weft_trace *trace);
/* of all instructions since creation */
int64_t weft_trace_high_water(const weft_trace *trace);
int32_t weft_trace_count(const weft_trace *trace);                               /* entries held */
const weft_trace_entry *weft_trace_entry_at(const weft_trace *trace, int32_t i); /* 0: the oldest held */
void weft_trace_print(const weft_trace *trace, const weft_program *program, const weft_job_spec *job, FILE *to);

/* What a slot went through in the last pass. */
typedef struct weft_trace_slot {
    int64_t bytes;      /* used, in whole lines of 64; 0: never used */
    int32_t born, died; /* instructions; -1: never */
} weft_trace_slot;
const weft_trace_slot *weft_trace_slot_at(const weft_trace *trace, int32_t slot); /* NULL: no such slot */

/* Called by the work itself, while its instruction runs, for each slot that it touches: how many bytes from its
 * start it needs. More than the slot has, or a slot that is not alive at this instruction, fails the instruction.
 * slot -1 (none) is fine. [main] */
void weft_trace_use(weft_trace *trace, int32_t slot, int64_t bytes);

/* ---- for the executor alone ---- */

struct weft_trace {
    weft_trace_entry *ring;
    int32_t capacity;
    int64_t recorded;       /* entries ever; the next one goes to recorded % capacity */
    weft_trace_slot *slots; /* [slot_room], of the pass at hand or the last one */
    int32_t n_slots, slot_room;
    int64_t live, high_water;
    const weft_program *program; /* NULL: no pass is under way */
    int32_t instruction;
    int32_t bad_slot; /* -1: every use since the instruction began was right */
    int64_t bad_bytes;
};

/* Begins a pass over the program. Allocates only if no earlier program had as many slots. */
weft_status weft_trace_begin(weft_trace *trace, const weft_program *program, weft_error *err);
void weft_trace_record(weft_trace *trace, uint64_t step, uint64_t start_ns, uint64_t end_ns);
/* Lets go of a slot whose last instruction is over. */
void weft_trace_release(weft_trace *trace, int32_t slot);
void weft_trace_end(weft_trace *trace);

#endif
