/* host/program/execute.h: executes a placed program, traces the execution, and edits programs.
 *
 * The executor iterates over the instructions and calls the caller's table with the slots of each. */
#ifndef WEFT_HOST_PROGRAM_EXECUTE_H
#define WEFT_HOST_PROGRAM_EXECUTE_H

#include "program/job.h"
#include "program/program.h"

/* ---- the trace ----
 *
 * A ring buffer records every instruction with its times. A slot is live from the instruction that first uses it until
 * its last instruction. It counts with the bytes used so far, in cache lines of 64 bytes. The high-water mark therefore
 * measures the run and does not depend on the planned sizes. */

typedef struct weft_trace_entry {
    uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
    int64_t live;              /* bytes of live slots at the instruction's end, before any is released */
    uint64_t step;
    int32_t instruction; /* index in the program */
} weft_trace_entry;

typedef struct weft_trace {
    weft_trace_entry *ring;
    int32_t capacity;
    int64_t recorded;            /* entries since creation; the next one is written to recorded % capacity */
    int64_t *used;               /* [n_slots] bytes of each slot in the current or last pass, rounded up to 64 */
    int64_t live, high_water;    /* high_water: since creation */
    const weft_program *program; /* NULL: no pass is running */
    int32_t instruction;
    int32_t bad_slot; /* first invalid use by the instruction; -1: no invalid use */
    int64_t bad_bytes;
} weft_trace;

weft_trace *weft_trace_create(int32_t capacity); /* capacity: at least 1 */
void weft_trace_destroy(weft_trace *trace);
int32_t weft_trace_count(const weft_trace *trace);                               /* stored entries */
const weft_trace_entry *weft_trace_entry_at(const weft_trace *trace, int32_t i); /* 0: the oldest; NULL: no such */

static inline double weft_trace_seconds(const weft_trace_entry *entry) {
    return 1e-9 * (double)(entry->end_ns - entry->start_ns);
}

/* Records that the running instruction uses the first `bytes` bytes of a slot; -1: no slot. The instruction fails if
 * the slot is smaller or not live. [main] */
void weft_trace_use(weft_trace *trace, int32_t slot, int64_t bytes);

/* Executes one instruction. A slot index is into program->slots; -1: no slot. */
typedef weft_status weft_exec_fn(void *context, const weft_instruction *instruction,
                                 const weft_instruction_slots *slots, weft_error *err);

/* Functions of the caller, by weft_instruction_kind. A communication instruction (GATHER, REDUCE, SEND, RECV,
 * REFRESH) is started by its own function and completed by `finish`. If its queue is 0, `finish` runs at once,
 * otherwise at its WAIT; the WAIT entry of the table is not read. Entries that the program does not need may be
 * NULL. */
typedef struct weft_exec_table {
    void *context;
    void (*begin)(void *context, int32_t index); /* called before each instruction; may be NULL */
    weft_exec_fn *run[WEFT_INSTRUCTION_REFRESH + 1];
    /* NULL: the instruction is complete when its function returns */
    weft_exec_fn *finish[WEFT_INSTRUCTION_REFRESH + 1];
    /* Called after each instruction with its status, within its time in the trace; returns the status. May be NULL. */
    weft_status (*end)(void *context, weft_status status, weft_error *err);
} weft_exec_table;

/* Executes the instructions [first, end) of a placed program, which the trace then records. No exchange may be in
 * flight at either end. An error is prefixed with the step and the instruction's name. A callback that stops the
 * execution returns WEFT_E_STOPPED. */
weft_status weft_program_execute(const weft_program *program, int32_t first, int32_t end, const weft_job_spec *job,
                                 const weft_exec_table *table, weft_trace *trace, uint64_t step, weft_error *err);

/* ---- time of a pass on one rank by kind of instruction, from its trace ----
 *
 * For an asynchronous device these are host times. The wait for the device at the end of a pass is not an
 * instruction; it counts as the caller's remainder. */

typedef enum weft_phase {
    WEFT_PHASE_FORWARD = 0,   /* FORWARD and COUNT, including the time to fetch micro-batches */
    WEFT_PHASE_RECOMPUTE = 1, /* of activation checkpointing */
    WEFT_PHASE_BACKWARD = 2,
    WEFT_PHASE_SUM = 3,      /* REDUCE without communication */
    WEFT_PHASE_EXCHANGE = 4, /* communication and waiting for it: GATHER, REDUCE, SEND, RECV, REFRESH, WAIT */
    WEFT_PHASE_NORM = 5,     /* includes communication if there are several ranks */
    WEFT_PHASE_OPTIMIZER = 6,
    WEFT_N_PHASES = 7
} weft_phase;

const char *weft_phase_name(int32_t phase); /* "forward" */

/* Adds the last pass in the trace, of this program; seconds: [WEFT_N_PHASES]. */
void weft_phases_add(double *seconds, const weft_trace *trace, const weft_program *program);

/* ---- modifications of a program, used in this folder only ---- */

/* Creates a program without instructions. */
weft_program *weft_program_create(const weft_job_spec *job, int32_t rank);

/* Implements the emitter's emit: appends a copy and returns its index; -1: too many instructions or no memory,
 * which the program records. */
int32_t weft_program_emit(weft_program *program, const weft_instruction *instruction);

/* Runs the passes: inserts the RECOMPUTEs of activation checkpointing, and starts each synchronous GATHER of parameters
 * job->prefetch GATHERs earlier, with a WAIT at the original position. Lack of memory is recorded in the program. */
void weft_program_rewrite(weft_program *program, const weft_job_spec *job);

#endif
