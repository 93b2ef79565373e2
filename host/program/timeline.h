/* host/program/timeline.h: the step programs of all ranks played by the clock.
 *
 * Each rank does its events in their order. What an event costs its rank, and how long what travels takes once all of
 * its ranks have started it, comes from the caller; from the programs comes who waits for whom. An exchange of another
 * queue lies beside what follows it, as far as the communicator moves bytes by itself; where the caller of the
 * communicator has to do that, the whole transfer is counted at the end of the exchange, where the rank waits for it.
 *
 * Ranks of one machine that work at the same moment slow each other down: between the time that a piece of work takes
 * alone and the one that it takes beside `together` ranks the number of ranks at work decides, in proportion; more
 * ranks than there is room for share what there is. */
#ifndef WEFT_HOST_PROGRAM_TIMELINE_H
#define WEFT_HOST_PROGRAM_TIMELINE_H

#include "program/overlap.h"

/* Seconds: with no other rank of the machine at work, and beside all that the rates were measured with. */
typedef struct weft_work {
    double alone, together;
} weft_work;

typedef struct weft_event_cost {
    weft_work own;   /* of the rank itself, when the event starts */
    weft_work after; /* of the rank itself, when what travelled is there: terms are added */
    double travel;   /* of the bytes, once all ranks have started the exchange */
} weft_event_cost;

typedef struct weft_simulation_spec {
    const weft_program *const *programs; /* [world], proved */
    const weft_job_spec *job;
    const weft_event_cost *const *costs; /* [world][n_events] */
    int32_t ranks_per_node;
    int32_t together;  /* ranks of a machine that weft_work.together is for, 1 or more */
    int32_t room;      /* ranks of a machine that can work at once and share no processor, 1 or more */
    bool own_progress; /* exchanges go on while their ranks work */
} weft_simulation_spec;

/* Of one rank, in seconds; compute, exposed and idle add up to the step's. */
typedef struct weft_rank_time {
    double compute;       /* at its own work */
    double exposed;       /* held up by bytes on their way */
    double idle;          /* held up by ranks that have not come yet, and at the end by those that have not ended */
    weft_overlap overlap; /* as a run counts it */
} weft_rank_time;

/* out: [world]. */
weft_status weft_programs_simulate(weft_rank_time *out, double *step_seconds, const weft_simulation_spec *spec,
                                   weft_error *err);

#endif
