/* host/program/execute.h: executes a placed program.
 *
 * The executor iterates over the instructions and calls the caller's table with the slots of each. The trace
 * (trace.h) records the execution. */
#ifndef WEFT_HOST_PROGRAM_EXECUTE_H
#define WEFT_HOST_PROGRAM_EXECUTE_H

#include "program/trace.h"

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
    /* Called after each instruction, within the instruction's time in the trace; may be NULL. */
    weft_status (*settle)(void *context, weft_error *err);
} weft_exec_table;

/* Executes only the instructions [first, end), which the trace then records. No exchange may be in flight at either
 * end. */
weft_status weft_program_execute_part(const weft_program *program, int32_t first, int32_t end, const weft_job_spec *job,
                                      const weft_exec_table *table, weft_trace *trace, uint64_t step, weft_error *err);

/* Executes all instructions of a placed program. An error is prefixed with the step and the instruction's name. A
 * callback that stops the execution returns WEFT_E_STOPPED. */
weft_status weft_program_execute(const weft_program *program, const weft_job_spec *job, const weft_exec_table *table,
                                 weft_trace *trace, uint64_t step, weft_error *err);

#endif
