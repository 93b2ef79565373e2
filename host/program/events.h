/* host/program/events.h: what the stages of this folder do to a program and nobody else does. */
#ifndef WEFT_HOST_PROGRAM_EVENTS_H
#define WEFT_HOST_PROGRAM_EVENTS_H

#include "program/job.h"

/* Without events. */
weft_status weft_program_create(weft_program **out, const weft_job_spec *job, int32_t rank, weft_error *err);

/* The emitter's emit: appends a copy and returns its index; -1: no memory, which the program remembers. */
int32_t weft_program_emit(weft_program *program, const weft_event *event);

/* Forgets slots and offsets. */
void weft_program_unplace(weft_program *program);

/* The pass of activation checkpointing: a RECOMPUTE before each BACKWARD whose segment keeps a tape, unless the
 * BACKWARD follows its own FORWARD at once, where the tape would not live any shorter. */
weft_status weft_program_checkpoint(weft_program *program, const weft_job_spec *job, weft_error *err);

/* The pass of prefetching: a GATHER of parameters that ends in its place starts earlier, by job->prefetch GATHERs of
 * its kind, and a WAIT stands where it stood. */
weft_status weft_program_hoist(weft_program *program, const weft_job_spec *job, weft_error *err);

#endif
