/* host/program/instructions.h: modifications of a program that only the stages of this folder use. */
#ifndef WEFT_HOST_PROGRAM_INSTRUCTIONS_H
#define WEFT_HOST_PROGRAM_INSTRUCTIONS_H

#include "program/job.h"

/* Creates a program without instructions. */
weft_status weft_program_create(weft_program **out, const weft_job_spec *job, int32_t rank, weft_error *err);

/* Implements the emitter's emit: appends a copy and returns its index; -1: out of memory, which the program records. */
int32_t weft_program_emit(weft_program *program, const weft_instruction *instruction);

/* Drops slots and offsets. */
void weft_program_unplace(weft_program *program);

/* Inserts the RECOMPUTEs of activation checkpointing: one before each BACKWARD with a tape. A BACKWARD directly
 * after its own FORWARD gets no RECOMPUTE, because that would not shorten the lifetime of the tape. */
weft_status weft_program_checkpoint(weft_program *program, const weft_job_spec *job, weft_error *err);

/* Prefetches parameters: starts each synchronous GATHER of parameters earlier, by job->prefetch GATHERs of its kind,
 * and puts a WAIT at the original position. */
weft_status weft_program_hoist(weft_program *program, const weft_job_spec *job, weft_error *err);

#endif
