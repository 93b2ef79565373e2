/* host/program/program.h: the step program: events that a strategy emitted, as data.
 *
 * From here on everything is decided before step 1: passes rewrite the events, the checker proves them, liveness gives
 * every event its slots, the pricer adds them up, the executor runs them and the trace records what really lived when.
 * Nothing in this folder knows configuration files, model names or how an operator computes: sizes come in through
 * weft_job_spec, work goes out through weft_exec_table. */
#ifndef WEFT_HOST_PROGRAM_PROGRAM_H
#define WEFT_HOST_PROGRAM_PROGRAM_H

#include <stdbool.h>
#include <stdio.h>
#include <weft/strategy.h>

/* Categories that memory is counted in. */
typedef enum weft_memory_category {
    WEFT_MEMORY_PARAMETERS = 0,
    WEFT_MEMORY_GRADIENTS = 1,
    WEFT_MEMORY_OPTIMIZER = 2,
    WEFT_MEMORY_ACTIVATIONS = 3,
    WEFT_MEMORY_WORKSPACE = 4,
    WEFT_MEMORY_DATA = 5, /* the data plugin's tokens and rows */
    WEFT_N_MEMORY_CATEGORIES = 6
} weft_memory_category;

const char *weft_memory_category_name(int32_t category);
const char *weft_mode_name(int32_t mode); /* "training", "evaluation", "generation" */

/* Sizes that the program's slots need, for one leaf of the largest shape; made by the caller from the graphs. */
typedef struct weft_segment_sizes {
    int64_t carry; /* out */
    int64_t tape;
    int64_t forward_work;         /* scratch of FORWARD */
    int64_t forward_work_untaped; /* scratch of a FORWARD that keeps no tape, because a RECOMPUTE follows */
    int64_t recompute_work, backward_work;
    bool has_backward;
    bool backward_reads_carry; /* BACKWARD reads the carry that came in; FORWARD and RECOMPUTE always do */
    bool carry_gradient;       /* its BACKWARD hands a gradient down */
} weft_segment_sizes;

/* Of one rank; what does not happen under the unit's placement is 0. */
typedef struct weft_unit_sizes {
    int64_t gradient;    /* its leaf gradient: its trainable groups in fp32, whole pieces; 0: frozen */
    int64_t gathered;    /* the slot that a GATHER of its parameters fills */
    int64_t exchange[5]; /* by weft_scope: the slot of a REDUCE: what it gives in another type, and what it receives */
    int64_t gather_each; /* bytes that a GATHER of its parameters gives to each other rank */
} weft_unit_sizes;

/* All that a program may depend on, beside the strategy. */
typedef struct weft_job_spec {
    weft_strategy_job view;             /* what the strategy sees; arrays owned by the caller */
    const weft_segment_sizes *segments; /* [view.n_segments] */
    const weft_unit_sizes *units;       /* [view.n_units] */
    int32_t prefetch;                   /* GATHERs that run ahead of the one that is needed; 0: none */
    int64_t leaf_bytes;                 /* ids, targets, weights, starts, positions of a leaf on the device */
    int64_t step_work;                  /* scratch of NORM and STEP */
    bool activation_checkpointing;
    bool in_order; /* messages of a sort between two ranks come in the order in which they are sent: no tags */
    /* What the strategy may take at most, [plugins] compile_seconds for each of its calls and compile_events for each
     * program; 0: any time, and as many as there is memory for. */
    double most_seconds;
    int64_t most_events;
} weft_job_spec;

/* A planned buffer: lives from event `first` to event `last`, both included. */
typedef enum weft_slot_kind {
    WEFT_SLOT_LEAF = 1, /* leaf: from its first FORWARD to the last event that runs a segment on it */
    WEFT_SLOT_CARRY =
        2,              /* out of segment, leaf: from its FORWARD to the last event of the next segment that reads it */
    WEFT_SLOT_TAPE = 3, /* segment, leaf: from FORWARD, or RECOMPUTE if there is one, to BACKWARD */
    WEFT_SLOT_CARRY_GRADIENT = 4, /* of what came out of segment, leaf: from the next one's BACKWARD to its own */
    WEFT_SLOT_LEAF_GRADIENT = 5,  /* unit, leaf: from the first BACKWARD that reads the unit to REDUCE */
    WEFT_SLOT_WORK = 6,           /* of one event */
    WEFT_SLOT_UNIT = 7,    /* unit: its gathered parameters, from GATHER to RELEASE or the last segment that reads it */
    WEFT_SLOT_EXCHANGE = 8 /* unit: of one REDUCE, from its start to its end */
} weft_slot_kind;

typedef struct weft_slot {
    int32_t kind, category;
    int32_t unit, segment, leaf; /* -1 where it has no meaning */
    int32_t first, last;         /* events */
    int64_t bytes;               /* rounded up to 64 */
    int64_t offset;              /* in the arena; -1: not placed, or elsewhere */
    bool elsewhere;              /* no storage of its own: a leaf gradient that is the sum itself */
} weft_slot;

/* Slots of one event; -1: none. A FORWARD without a tape is followed by a RECOMPUTE, or by no BACKWARD at all; a
 * RECOMPUTE makes the tape alone and has no carry_out: the segment above has read that carry already. */
typedef struct weft_event_slots {
    int32_t leaf, carry_in, carry_out, tape, work;
    int32_t d_carry_out, d_carry_in; /* what comes from above; what goes below */
    int32_t unit;                    /* of a GATHER or RELEASE: the gathered parameters */
    int32_t exchange;                /* of a REDUCE */
    const int32_t *gradients;        /* [n_units] leaf-gradient slot of each unit at this event, or -1 */
} weft_event_slots;

struct weft_program {
    weft_event *events;
    int32_t n_events, capacity;
    int32_t mode, leaves; /* leaves: R * A of the whole step */
    int32_t rank;
    weft_slot *slots;
    int32_t n_slots;
    weft_event_slots *event_slots; /* [n_events] */
    int32_t *event_gradients;      /* storage of event_slots[].gradients */
    int32_t *by_last;              /* [n_slots] slots in the order in which they die */
    int64_t arena;                 /* bytes of all slots with storage, placed */
    int64_t peak;                  /* bytes of live slots with storage at peak_event; arena - peak is fragmentation */
    int32_t peak_event;            /* the first event at which so much lives */
    bool out_of_memory, too_many;  /* emit failed; compile reports it */
    int64_t most_events;           /* that a strategy may emit; 0: any number */
    int32_t foreign_event;         /* the first that asks for what this host does not know; -1: none */
};

/* Asks the strategy how many replicas there are, judges the answer and sets job->view.replicas. */
weft_status weft_job_replicas(weft_job_spec *job, const weft_host *host, const weft_strategy_plugin *strategy,
                              const void *strategy_config, weft_error *err);
/* Asks it where units and segments lie: sets the placement of each unit and the owner of each segment in the arrays
 * that job->view points to, which only the strategy sees as const. */
weft_status weft_job_place(weft_job_spec *job, const weft_host *host, const weft_strategy_plugin *strategy,
                           const void *strategy_config, weft_error *err);
/* Asks it for a rank's program of a placed job; then the passes. The program is unproved and has no slots yet. On
 * failure *out is what was emitted until then, the caller's to destroy, as it is on success; NULL: nothing was. */
weft_status weft_program_compile(weft_program **out, const weft_host *host, const weft_strategy_plugin *strategy,
                                 const void *strategy_config, const weft_job_spec *job, int32_t rank, weft_error *err);
/* A copy of the events alone, for tests and passes. */
weft_status weft_program_copy(weft_program **out, const weft_program *program, weft_error *err);
void weft_program_destroy(weft_program *program);

/* What the proof says of the sums: whether each is the one that the job's `reduce` defines, to the bit. */
typedef struct weft_coverage {
    bool covered;
    char why[512];                       /* a sentence where it is not: why, and the nearest setting that is */
    int32_t refused_rank, refused_event; /* where a proof ended; the number of events where one is missing; -1: it did
                                          * not, or no event is to blame */
} weft_coverage;

/* Proves that the programs of all ranks, in rank order, are together one optimizer step (or one leaf per replica of
 * evaluation, or one of generation) of this job: that running them gives the numbers that the job defines, whatever
 * sizes, values and speeds are, and that all ranks get to the end with nothing buffered at all. err names rank, event,
 * unit or segment, leaf, and what was expected there.
 *
 * Proved for a training step:
 *   - each (segment, leaf) has one FORWARD on all ranks together, on a rank that owns the segment, where the carry of
 *     the segment below is: from its own FORWARD, or from a RECV that has ended; all units that it reads are live there
 *     (held whole, or gathered since STEP and not released);
 *   - each segment that has a BACKWARD has one per leaf, on the rank that ran its FORWARD, after COUNT, where the
 *     gradient from above is; at most one RECOMPUTE lies between the two, and none where checkpointing is off;
 *   - BACKWARDs of a rank that read a trainable unit run in leaf order;
 *   - a REDUCE comes after every BACKWARD that reads the unit for that leaf has run, here or on a rank whose part has
 *     been received; each leaf is in the finished sum of each trainable unit exactly once, in the defined order (or the
 *     sums are not covered), and where the placement wants it; frozen units have none;
 *   - what an event of another queue reads or writes is not touched until its WAIT; each such event has one WAIT;
 *   - collectives match within their groups, SENDs and RECVs pairwise; played with every exchange ending only when all
 *     its ranks have started it, all ranks get to the end;
 *   - NORM comes once, after all sums; STEP once, after NORM; then only what makes stale copies whole: every one is at
 *     the end; gathered copies are gone;
 *   - nothing is missing, nothing comes twice, and every event's other fields say nothing.
 * For evaluation and generation: FORWARDs, and what brings parameters and carries to them, alone. */
weft_status weft_programs_check(weft_coverage *out, const weft_program *const *programs, const weft_job_spec *job,
                                weft_error *err);

/* A number that two sets of programs share if they do the same: the events of all ranks, what each unit holds and where
 * it lies; what units are called does not count. 64 bits: another set has the same one by an accident of 2^-64. */
uint64_t weft_programs_identity(const weft_program *const *programs, const weft_job_spec *job);

/* Gives a rank's program of a proved set slots from liveness, and offsets. May be called again. */
weft_status weft_program_place(weft_program *program, const weft_job_spec *job, weft_error *err);

/* What the placed program takes at its highest moment. */
typedef struct weft_price {
    int64_t arena;                               /* bytes, fragmentation included */
    int64_t peak;                                /* bytes of live slots at the highest event */
    int64_t category[WEFT_N_MEMORY_CATEGORIES];  /* of live slots at that event */
    int64_t permanent[WEFT_N_MEMORY_CATEGORIES]; /* what lies outside the arena for the whole run: parameters, sums of
                                                    gradients, optimizer state, tables; 0 until the caller adds it */
    int32_t peak_event;
} weft_price;
/* Of a placed program. */
void weft_program_price(weft_price *out, const weft_program *program);

/* Called for each slot of an event with the name of its use, a unit's for its leaf gradient, in the order of
 * weft_event_slots. The program is placed. */
typedef void (*weft_slot_visit)(void *context, const char *name, const weft_slot *slot);
void weft_event_slots_visit(const weft_program *program, const weft_job_spec *job, int32_t event, weft_slot_visit visit,
                            void *context);
/* One line per event; with slots if placed. */
void weft_program_print(const weft_program *program, const weft_job_spec *job, FILE *to);
/* With a mark at an event; behind the last one if that is how many there are. */
void weft_program_print_marked(const weft_program *program, const weft_job_spec *job, int32_t marked, FILE *to);
const char *weft_event_kind_name(int32_t kind);
const char *weft_what_name(int32_t what);
const char *weft_scope_name(int32_t scope);
/* "BACKWARD layers.3.mlp leaf 2" into text. job NULL: segments and units by number. */
void weft_event_describe(char *text, size_t size, const weft_event *event, const weft_job_spec *job);

#endif
