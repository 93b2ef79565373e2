/* host/program/plan.h: all decisions about a run before memory is allocated: the model and its layout, the programs of
 * its modes, the state of one rank, and the total bytes.
 *
 * `weft plan`, the all-rank plan and the reports read a plan. `weft train` runs an engine (run/engine.h), which
 * holds a plan, so the printed plan is always the executed one. A plan has no buffers and starts no work. It needs a
 * device only while it is made, to query the scratch size of its kernels. */
#ifndef WEFT_HOST_PROGRAM_PLAN_H
#define WEFT_HOST_PROGRAM_PLAN_H

#include "adapter/stack.h"
#include "base/units.h"
#include "model/declare.h"
#include "model/layout.h"
#include "program/job.h"
#include "program/program.h"
#include "program/run.h"

/* ---- hashes of the plugin results from which a plan was made ----
 *
 * Two processes with the same inputs must have identical hashes. */

/* Each entry depends only on earlier ones. */
typedef enum weft_answer_kind {
    WEFT_ANSWER_MODEL = 0,                                         /* the parameters that the model declares */
    WEFT_ANSWER_ADAPTERS = 1,                                      /* parameters that each adapter adds */
    WEFT_ANSWER_UNITS = WEFT_ANSWER_ADAPTERS + WEFT_MOST_ADAPTERS, /* units of the policy */
    WEFT_ANSWER_SEGMENTS,                                          /* parameters that segments read */
    WEFT_ANSWER_PLACES,                                            /* replicas, unit placements and segment owners */
    WEFT_ANSWER_PROGRAMS,                                          /* of all ranks */
    WEFT_N_ANSWERS
} weft_answer_kind;

/* Plain bytes: ranks exchange them. */
typedef struct weft_plan_answer {
    uint64_t number; /* 0: not queried */
    char said[120];  /* description: "model.layers.0, root"; "" if the number is enough */
} weft_plan_answer;

typedef struct weft_plan_answers {
    weft_plan_answer of[WEFT_N_ANSWERS];
} weft_plan_answers;

/* ---- slices: parts of a program whose behavior depends only on their own micro-batches ----
 *
 * A boundary is a point without in-flight instructions: every started instruction of another queue has had its WAIT,
 * and no gathered unit is live. No micro-batch is used on both sides of it. Graph capture (run/graph_capture.c) caches
 * each slice by the lengths of its micro-batches. This needs few captured graphs; capture of complete steps would need
 * one for each combination of lengths.
 *
 * All ranks must capture and replay the same exchanges at the same time. Their programs are therefore split at the
 * same instructions, provided that they differ only in their micro-batches; a slice lists the micro-batches of all
 * ranks. Programs with other differences, such as pipeline programs, form one slice. */

typedef struct weft_slices {
    int32_t n;              /* at least one */
    int32_t *first;         /* [n + 1] instructions; the last entry is their number */
    int32_t *micro_batches; /* micro-batches of all ranks, slice after slice, identical on every rank */
    int32_t *at;            /* [n + 1] start of each slice's micro-batches in `micro_batches` */
} weft_slices;

/* Computes the slices of a rank's program. programs: checked programs of all ranks. cut false: one slice with all
 * micro-batches. */
weft_slices *weft_slices_create(const weft_program *const *programs, int32_t world, int32_t rank, bool cut);
void weft_slices_destroy(weft_slices *slices); /* NULL is fine */

/* Device memory of the run, by line. The arena holds all slots of the programs; the program accounts for the arena's
 * categories. */
typedef enum weft_account_line {
    WEFT_ACCOUNT_PARAMETERS = 0,
    WEFT_ACCOUNT_GRADIENTS = 1, /* the sums over micro-batches */
    WEFT_ACCOUNT_OPTIMIZER = 2,
    WEFT_ACCOUNT_FIXED = 3, /* position tables, scalars, the optimizer's small struct */
    WEFT_ACCOUNT_ARENA = 4,
    WEFT_ACCOUNT_SNAPSHOT = 5, /* asynchronous checkpoint (budget.h), if the host sees the device's memory */
    WEFT_ACCOUNT_CONTROL = 6,  /* buffer of the control channel between ranks (model/process_group.h) */
    WEFT_ACCOUNT_DATA = 7,     /* memory of the data plugin, if the device computes in the machine's memory */
    WEFT_N_ACCOUNT_LINES = 8
} weft_account_line;

/* Exact bytes that the engine allocates on the device, plus the memory of the data plugin if it shares the device
 * memory. */
typedef struct weft_plan_bytes {
    int64_t line[WEFT_N_ACCOUNT_LINES];
    int64_t total;
    int64_t category[WEFT_N_MEMORY_CATEGORIES]; /* at the peak; with `spare` they add up to total */
    int64_t spare;                              /* gaps of the arena at the peak */
    /* Asynchronous checkpoint; host memory and excluded from total if the host does not see the device's memory. */
    int64_t snapshot;
    int64_t data; /* memory of the data plugin; excluded from total like snapshot */
    /* The data plugin's peak while it prepares the data, before the engine allocates; excluded from total. 0: not
     * counted, or the device has its own memory. */
    int64_t preparation;
} weft_plan_bytes;

typedef struct weft_plan_spec {
    bool training;         /* a training program, gradients, optimizer state */
    bool saves;            /* a checkpoint is due before the last step */
    int32_t evaluate_rows; /* micro-batches of evaluation; 0: no evaluation program */
    int32_t micro_batches; /* micro-batches of one optimizer step over all replicas: R * A */
    int32_t rows;          /* micro_batch */
    int32_t n_lengths;
    int32_t lengths[WEFT_MAX_LENGTHS];
    int64_t data_bytes;  /* memory of the data plugin in the machine's memory, per rank */
    int64_t data_shared; /* the same, once per machine */
    int64_t data_peak;   /* while the data is prepared; if data_shared > 0, once per machine */
    /* Generation instead of training and evaluation: rows is 1, and host/run/generate.c runs the graphs. */
    int32_t cache_rows;  /* positions of the KV cache; 0: no generation */
    int32_t prompt_rows; /* positions of the longest FORWARD of generation */
} weft_plan_spec;

/* A row of an exchange: the sum of the micro-batches [lo, hi). */
typedef struct weft_term {
    int32_t row; /* index of the sending rank in the group */
    int32_t lo, hi;
} weft_term;

/* The terms that each REDUCE of a rank sums. A REDUCE across ranks receives one row from each rank of its group. The
 * programs of all ranks determine the micro-batches that a row sums. */
typedef struct weft_terms {
    weft_term *terms;   /* terms of all instructions, sorted by micro-batch within each instruction */
    int32_t *first, *n; /* [n_instructions] terms of each REDUCE; n 0: another instruction */
    bool scattered;     /* some row sums non-consecutive micro-batches */
} weft_terms;

void weft_terms_destroy(weft_terms *terms); /* NULL is fine */

/* Describes how a unit's gradient sum is computed (sums.c). */
typedef struct weft_unit_sum {
    bool two_hops, loose; /* loose: terms are added in arrival order */
    int32_t scope;        /* of the last hop */
    /* Maximum number of pending partial sums of each hop; the first of the last hop is the unit's gradient. */
    int32_t depth[2];
    int64_t partials[2]; /* offset in elements from the start of the pending sums to the other ones */
    int64_t length[2];   /* elements of one partial sum */
} weft_unit_sum;

/* Location of a micro-batch's loss. */
typedef struct weft_loss_place {
    int32_t rank, position; /* the micro-batch is the position-th that the rank completes */
} weft_loss_place;

/* A mode's graphs, job and placed program. */
typedef struct weft_mode_plan {
    weft_graph_set *graphs;
    weft_job *job;
    weft_program *program; /* this rank's program */
    weft_coverage coverage;
    uint64_t identity;       /* weft_programs_identity of all ranks */
    weft_terms *terms;       /* of training */
    weft_unit_sum *sums;     /* [n_units], of training */
    weft_loss_place *losses; /* [program->micro_batches] */
    int64_t partials;        /* elements of the pending sums */
    int32_t most_losses;     /* maximum number of micro-batches that one rank completes */
    weft_slices *slices;     /* slices of the program for graph capture */
} weft_mode_plan;

/* How checkpoints before the last step are saved (budget.h). */
typedef enum weft_save_place {
    WEFT_SAVES_NONE = 0,     /* no checkpoint before the last step */
    WEFT_SAVES_IN_PLACE = 1, /* synchronous: [checkpoint] async = no */
    WEFT_SAVES_SHARED = 2,   /* synchronous: auto, and the device computes in the machine's memory */
    WEFT_SAVES_NO_ROOM = 3,  /* synchronous: auto, and the machine lacks memory for the copies */
    WEFT_SAVES_BESIDE = 4
} weft_save_place;

/* WEFT_HOLD_STATES and later entries: optimizer states, each in its own type. The first entry exists even without
 * states; it describes the elements that a rank updates. */
enum { WEFT_HOLD_PARAMETERS, WEFT_HOLD_GRADIENTS, WEFT_HOLD_STATES, WEFT_N_HOLDS = WEFT_HOLD_STATES + WEFT_MAX_STATES };

typedef struct weft_plan {
    const weft_run *run;
    weft_plan_spec spec;
    int32_t dtype;              /* weft_dtype of the computation: [train] precision */
    int32_t rank, world, nodes; /* rank of this plan, number of ranks, number of machines */
    bool in_order;              /* WEFT_COMM_IN_ORDER of its communicator */
    bool begins_adapters;       /* some adapters are continued ([adapter] from), and others are new */
    bool base_is_trained; /* [model] base stores the parameters that [train] trainable names: they are not trained */
    weft_declared *declared;
    weft_adapter_origin origins[WEFT_MOST_ADAPTERS]; /* of the run's adapters that have been added so far */
    weft_layout *layout;
    weft_state_slot states[WEFT_MAX_STATES]; /* [n_states] per-element optimizer states, in their storage type */
    int64_t n_states;
    int64_t hp_bytes;                         /* size of the optimizer's small struct */
    weft_mode_plan train, evaluate, generate; /* program NULL: not requested */
    weft_hold *holds[WEFT_N_HOLDS];           /* extents on this rank; gradients and states: of the trainable groups */
    bool *apart[WEFT_N_HOLDS]; /* [n_groups] true if no rank has the complete group, or another rank has it */
    bool draws;                /* training uses dropout */
    int64_t table_rows;        /* of each position table */
    bool *in_products;         /* [n_parameters] true if some graph reads it other than by look-up */
    weft_save_place saves;
    bool visible; /* the host sees the device's memory */
    weft_plan_bytes bytes;
    weft_plan_answers answers; /* answers of plugins */
} weft_plan;

/* True if a checkpoint contains the base weights. It is false if adapters are trained on the unchanged weights of
 * [model] path; trained base parameters are then saved with an adapter. */
static inline bool weft_plan_saves_base(const weft_plan *plan) {
    return plan->declared->n_adapters == 0 || plan->run->settings.model.start == WEFT_START_FRESH;
}

/* True if losses are multiplied by a scale before backward (run/schedule.h); steps may then end without an update. */
static inline bool weft_plan_scales(const weft_plan *plan) {
    return plan->dtype == WEFT_F16;
}

/* Frees the contents of the plan. A plan that was never opened is allowed. */
void weft_plan_close(weft_plan *self);

/* Returns the plan of another rank with the shared parts borrowed: model, layout, graphs and jobs. It has no
 * program, sums or extents of its own yet. weft_plan_drop_rank frees those once they are set. */
weft_plan weft_plan_as_rank(const weft_plan *self, int32_t rank);
void weft_plan_drop_rank(weft_plan *self);

/* Returns the rows of the position tables: the longest micro-batch or the cache. */
int64_t weft_plan_table_rows(const weft_plan_spec *spec);

/* The maximum of a program's field over training and evaluation; 0 if there is no such program. */
#define weft_plan_most(plan, field)                                                                                    \
    (int32_t) weft_larger((plan)->train.program != NULL ? (plan)->train.program->field : 0,                            \
                          (plan)->evaluate.program != NULL ? (plan)->evaluate.program->field : 0)

/* ---- making a plan (make_plan.c, mode_plan.c) ---- */

/* Declares the model, selects the trained parameters, and lays out the units of the policy. plan: zeroed except rank,
 * world and nodes. The caller closes it even after a failure. */
weft_status weft_plan_open(weft_plan *plan, const weft_run *run, weft_error *err);

/* Records the base weights of the run's adapters. */
void weft_plan_set_base(weft_plan *plan, const weft_adapter_origin *from);

/* Makes graphs, jobs, the checked programs of all ranks, the state of this rank, and the bytes. states, n_states and
 * hp_bytes are set. The device returns the scratch sizes of its kernels. */
weft_status weft_plan_make(weft_plan *self, const weft_device_plugin *kernels, weft_device *device,
                           const weft_plan_spec *spec, weft_error *err);

/* Makes one mode of the plan, with graphs of these lengths. micro_batches: of a step, over all replicas. */
weft_status weft_mode_plan_make(weft_plan *plan, weft_mode_plan *mode_plan, const weft_graph_spec *graphs,
                                const int32_t *lengths, int32_t n_lengths, int32_t micro_batches, weft_error *err);

/* Set by a tool that prints programs. [main] */
extern struct weft_plan_printing {
    int32_t mode; /* a session also plans this mode; -1: no other */
    /* Receives a rejected program with the rejected instruction, or the number of instructions if one is missing; -1:
     * unknown. NULL: not called. */
    void (*rejected)(const weft_program *program, const weft_job_spec *job, int32_t instruction);
} weft_plan_printing;

/* ---- hashes of plugin results (plugin_answers.c) ---- */

/* Returns a 64-bit hash of the behavior of the programs: the instructions of all ranks, and the content and placement
 * of each unit. Unit names are excluded. Two different sets collide with probability 2^-64. */
uint64_t weft_programs_identity(const weft_program *const *programs, const weft_job_spec *job);

/* Record the results so far. Each is called immediately after its result, because later ones modify the plan. */
void weft_answers_note_model(weft_plan *plan);
void weft_answers_note_adapters(weft_plan *plan);
void weft_answers_note_units(weft_plan *plan);
void weft_answers_note_programs(weft_plan *plan); /* also segments and placements */

/* Returns the first kind that differs; WEFT_N_ANSWERS: none. */
int32_t weft_answers_part(const weft_plan_answers *a, const weft_plan_answers *b);

/* Returns WEFT_E_PLUGIN: "policy:mine (/home/you/weft-policy-mine.so) makes other units on rank 1 than on rank 0: ...".
 * here, there: "on rank 1", "on rank 0". */
weft_status weft_answers_report_difference(const weft_plan *plan, int32_t kind, const char *here,
                                           const weft_plan_answers *mine, const char *there,
                                           const weft_plan_answers *theirs, weft_error *err);

#endif
