/* host/program/phases.h: time of a pass on one rank by kind of instruction, computed from its trace.
 *
 * For an asynchronous device these are host times. The wait for the device at the end of a pass is not an
 * instruction; it counts as the caller's remainder. */
#ifndef WEFT_HOST_PROGRAM_PHASES_H
#define WEFT_HOST_PROGRAM_PHASES_H

#include "program/execute.h"

typedef enum weft_phase {
    WEFT_PHASE_FORWARD = 0,   /* FORWARD and COUNT, including the time to fetch micro-batches */
    WEFT_PHASE_RECOMPUTE = 1, /* of activation checkpointing */
    WEFT_PHASE_BACKWARD = 2,
    WEFT_PHASE_SUM = 3,      /* REDUCE that stays on the rank */
    WEFT_PHASE_EXCHANGE = 4, /* communication and waiting for it: GATHER, REDUCE, SEND, RECV, REFRESH, WAIT */
    WEFT_PHASE_NORM = 5,     /* includes communication if there are several ranks */
    WEFT_PHASE_OPTIMIZER = 6,
    WEFT_N_PHASES = 7
} weft_phase;

const char *weft_phase_name(int32_t phase); /* "forward" */

/* Adds the last pass in the trace, of this program; seconds: [WEFT_N_PHASES]. */
void weft_phases_add(double *seconds, const weft_trace *trace, const weft_program *program);

#endif
