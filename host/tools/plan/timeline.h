/* host/tools/plan/timeline.h: simulates the step programs of all ranks over time.
 *
 * Each rank executes its instructions in order. The caller provides the cost of each instruction, and the transfer time
 * once all ranks have started the exchange. The programs determine the dependencies between ranks. An exchange of
 * another queue overlaps with later instructions if the communicator makes progress by itself. Otherwise the complete
 * transfer is counted at the end of the exchange, where the rank waits for it.
 *
 * Ranks of one machine that work at the same time slow each other down. The time of a work item is interpolated
 * linearly between `alone` and `together` by the number of working ranks. More ranks than `room` share the
 * processors. */
#ifndef WEFT_HOST_TOOLS_PLAN_TIMELINE_H
#define WEFT_HOST_TOOLS_PLAN_TIMELINE_H

#include "train/summary.h"

/* Seconds: with no other rank of the machine at work, and with `together` ranks at work as in the measured rates. */
typedef struct weft_work {
    double alone, together;
} weft_work;

typedef struct weft_instruction_cost {
    weft_work own;   /* work of the rank when the instruction starts */
    weft_work after; /* work of the rank after the data arrive: terms are added */
    double travel;   /* transfer time once all ranks have started the exchange */
} weft_instruction_cost;

typedef struct weft_simulation_spec {
    const weft_program *const *programs; /* [world], checked */
    const weft_job_spec *job;
    const weft_instruction_cost *const *costs; /* [world][n_instructions] */
    int32_t ranks_per_node;
    int32_t together;  /* ranks of a machine that weft_work.together is for, 1 or more */
    int32_t room;      /* ranks of a machine that can work at once and share no processor, 1 or more */
    bool own_progress; /* exchanges progress during computation */
} weft_simulation_spec;

/* Times of one rank in seconds; compute, exposed and idle add up to the step's. */
typedef struct weft_rank_time {
    double compute;       /* own work */
    double exposed;       /* waiting for transfers */
    double idle;          /* waiting for ranks that have not started an exchange, or not finished the step */
    weft_overlap overlap; /* as a run counts it */
} weft_rank_time;

/* out: [world]. */
weft_status weft_programs_simulate(weft_rank_time *out, double *step_seconds, const weft_simulation_spec *spec,
                                   weft_error *err);

#endif
