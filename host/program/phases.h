/* host/program/phases.h: what the time of a pass went to on one rank, by kind of event: from its trace, which is there
 * anyway.
 *
 * Of a device that computes later than it is told, this is the host's time: what it waits for at the end of a pass is
 * no event, and ends in the caller's remainder. */
#ifndef WEFT_HOST_PROGRAM_PHASES_H
#define WEFT_HOST_PROGRAM_PHASES_H

#include "program/execute.h"

typedef enum weft_phase {
    WEFT_PHASE_FORWARD = 0,   /* FORWARD and COUNT, what the data takes to hand out leaves included */
    WEFT_PHASE_RECOMPUTE = 1, /* of activation checkpointing */
    WEFT_PHASE_BACKWARD = 2,
    WEFT_PHASE_SUM = 3,      /* REDUCE that stays on the rank */
    WEFT_PHASE_EXCHANGE = 4, /* what travels, and waiting for it: GATHER, REDUCE, SEND, RECV, REFRESH, WAIT */
    WEFT_PHASE_NORM = 5,     /* with several ranks it goes round too */
    WEFT_PHASE_OPTIMIZER = 6,
    WEFT_N_PHASES = 7
} weft_phase;

const char *weft_phase_name(int32_t phase); /* "forward" */

/* Adds the pass that the trace recorded last, of this program; seconds: [WEFT_N_PHASES]. */
void weft_phases_add(double *seconds, const weft_trace *trace, const weft_program *program);

#endif
