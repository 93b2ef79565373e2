/* host/program/timeline.h: simulates the step programs of all ranks over time.
 *
 * Each rank executes its instructions in order. The caller provides the cost of each instruction, and the transfer time
 * once all ranks have started the exchange. The programs determine the dependencies between ranks. An exchange of
 * another queue overlaps with later instructions if the communicator makes progress by itself. Otherwise the complete
 * transfer is counted at the end of the exchange, where the rank waits for it.
 *
 * Ranks of one machine that work at the same time slow each other down. The time of a work item is interpolated
 * linearly between `alone` and `together` by the number of working ranks. More ranks than `room` share the
 * processors. */
#ifndef WEFT_HOST_PROGRAM_TIMELINE_H
#define WEFT_HOST_PROGRAM_TIMELINE_H

#include "program/execute.h"

/* ---- overlap of exchanges with other work: measured from a trace, or simulated ---- */

typedef enum weft_overlap_kind {
    WEFT_OVERLAP_GATHER = 0, /* of parameters */
    WEFT_OVERLAP_REDUCE = 1, /* REDUCE, and GATHER of finished sums */
    WEFT_OVERLAP_OTHER = 2,  /* REFRESH, SEND, RECV */
    WEFT_N_OVERLAP = 3
} weft_overlap_kind;

/* Seconds. busy: inside the instruction and its WAIT, including the work on the received data. */
typedef struct weft_overlap {
    double under_way[WEFT_N_OVERLAP]; /* from an instruction's start to its end */
    double busy[WEFT_N_OVERLAP];
} weft_overlap;

const char *weft_overlap_name(int32_t kind); /* "reduce" */

/* Adds the last pass in the trace, of this program. */
void weft_overlap_add(weft_overlap *overlap, const weft_trace *trace, const weft_program *program);
/* Returns the percentage of the exchange time that the rank spent on other work; 0: no exchange of this kind. */
double weft_overlap_hidden(const weft_overlap *overlap, int32_t kind);
/* Prints the same as a column of a table; "-": no exchange of this kind. */
void weft_overlap_print(const weft_overlap *overlap, int32_t kind, FILE *to);

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
