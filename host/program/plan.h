/* host/program/plan.h: all that is decided of a run before any memory is taken: the model and its layout, the programs
 * of its modes, what one rank keeps, and how many bytes that comes to.
 *
 * `weft plan`, the survey of other ranks and the reports read a plan; `weft train` runs an engine (run/engine.h),
 * which holds one: what is printed cannot drift from what is run. A plan has no buffer and starts nothing. It needs a
 * device only while it is made (make_plan.h), to ask how much scratch its kernels want. */
#ifndef WEFT_HOST_PROGRAM_PLAN_H
#define WEFT_HOST_PROGRAM_PLAN_H

#include "adapter/origin.h"
#include "model/hold.h"
#include "program/answers.h"
#include "program/graphs.h"
#include "program/make_job.h"
#include "program/slices.h"
#include "program/terms.h"
#include "program/run.h"

/* What the run takes from the device, by line; the arena holds all slots of the programs, whose inner categories are
 * the program's affair. */
typedef enum weft_account_line {
    WEFT_ACCOUNT_PARAMETERS = 0,
    WEFT_ACCOUNT_GRADIENTS = 1, /* the sums over leaves */
    WEFT_ACCOUNT_OPTIMIZER = 2,
    WEFT_ACCOUNT_FIXED = 3, /* position tables, scalars, the optimizer's small struct */
    WEFT_ACCOUNT_ARENA = 4,
    WEFT_ACCOUNT_SNAPSHOT =
        5,                 /* what is saved beside training (save_place.h), where the host sees the device's memory */
    WEFT_ACCOUNT_POST = 6, /* what ranks tell one another goes through it (model/peers.h) */
    WEFT_ACCOUNT_DATA = 7, /* what the data plugin holds, where the device computes in the machine's memory */
    WEFT_N_ACCOUNT_LINES = 8
} weft_account_line;

/* What the engine takes from the device, to the byte, and what the data plugin holds in the same memory. */
typedef struct weft_plan_bytes {
    int64_t line[WEFT_N_ACCOUNT_LINES];
    int64_t total;
    int64_t category[WEFT_N_MEMORY_CATEGORIES]; /* at the highest moment; with `spare` they add up to total */
    int64_t spare;                              /* gaps of the arena at that moment */
    int64_t snapshot; /* what is saved beside training; of the host's memory, and no part of total, where the host does
                         not see the device's */
    int64_t data;     /* what the data plugin holds; like snapshot no part of total where the host does not see the
                         device's memory */
} weft_plan_bytes;

typedef struct weft_plan_spec {
    bool training;         /* a training program, gradients, optimizer state */
    bool saves;            /* a checkpoint is due before the last step */
    int32_t evaluate_rows; /* leaves of evaluation; 0: no evaluation program */
    int32_t leaves;        /* of one optimizer step, all replicas together: R * A */
    int32_t rows;          /* micro_batch */
    int32_t n_lengths;
    int32_t lengths[WEFT_MAX_LENGTHS];
    int64_t data_bytes;  /* that the data plugin holds in the machine's memory, on each rank */
    int64_t data_shared; /* the same, once per machine */
    /* Generation instead of the two above: rows is 1, and the graphs are run by host/run/generate.c. */
    int32_t cache_rows;  /* places of the key-value state; 0: no generation */
    int32_t prompt_rows; /* places of the longest FORWARD of generation */
} weft_plan_spec;

/* How a unit's sum is made (sums.c). */
typedef struct weft_unit_sum {
    bool two_hops, loose; /* loose: in the order in which terms come */
    int32_t scope;        /* of the last hop */
    int32_t depth[2];     /* sums that wait at most, of each hop; the first of the last hop is the unit's gradient */
    int64_t partials[2];  /* elements from the start of the sums that wait to the others */
    int64_t length[2];    /* elements of one */
} weft_unit_sum;

/* Where a leaf's loss is. */
typedef struct weft_loss_place {
    int32_t rank, position; /* the leaf is the position-th of those that the rank takes to the end */
} weft_loss_place;

/* A mode's graphs, job and placed program. */
typedef struct weft_stage {
    weft_graph_set *graphs;
    weft_job *job;
    weft_program *program; /* this rank's */
    weft_program *shown;   /* another one that is to be shown (show.h), placed; NULL: none */
    weft_price price;
    weft_coverage coverage;
    uint64_t identity;       /* of all ranks' programs together */
    weft_terms *terms;       /* of training */
    weft_unit_sum *sums;     /* [n_units], of training */
    weft_loss_place *losses; /* [program->leaves] */
    int64_t partials;        /* elements of the sums that wait */
    int32_t most_losses;     /* leaves that one rank takes to the end, at most */
    weft_slices *slices;     /* of the program, as passes over it are recorded */
} weft_stage;

/* How checkpoints leave that are due before the last step (save_place.h). */
typedef enum weft_save_place {
    WEFT_SAVES_NONE = 0,     /* none is */
    WEFT_SAVES_IN_PLACE = 1, /* as [checkpoint] beside = no says */
    WEFT_SAVES_SHARED = 2,   /* in place: auto, and the device computes in the machine's memory */
    WEFT_SAVES_NO_ROOM = 3,  /* in place: auto, and the machine has no room for the copies */
    WEFT_SAVES_BESIDE = 4
} weft_save_place;

/* WEFT_HOLD_STATES and what follows: state after state, each in its own type; the first one is there without states,
 * too, and says what a rank updates. */
enum { WEFT_HOLD_PARAMETERS, WEFT_HOLD_GRADIENTS, WEFT_HOLD_STATES, WEFT_N_HOLDS = WEFT_HOLD_STATES + WEFT_MAX_STATES };

typedef struct weft_plan {
    const weft_run *run;
    weft_plan_spec spec;
    int32_t dtype;              /* weft_dtype that the model computes in: [train] precision */
    int32_t rank, world, nodes; /* whose plan it is, among how many, on how many machines */
    bool in_order;              /* of its communicator: WEFT_COMM_IN_ORDER */
    bool begins_adapters;       /* some are continued ([adapter] from), and others are new beside them */
    bool base_is_trained;       /* [model] base stores what [train] trainable names: then nothing is trained */
    weft_declared *declared;
    weft_adapter_origin origins[WEFT_MOST_ADAPTERS]; /* of the run's adapters, as many as have joined */
    weft_layout *layout;
    weft_state_slot states[WEFT_MAX_STATES]; /* [n_states] that the optimizer keeps of each trained element, in the type
                                                in which they are kept */
    int64_t n_states;
    int64_t hp_bytes;                     /* of the optimizer's small struct */
    weft_stage train, evaluate, generate; /* program NULL: not asked for */
    weft_hold *holds[WEFT_N_HOLDS];       /* what this rank keeps; gradients and states: of the trainable groups */
    bool *apart[WEFT_N_HOLDS];            /* [n_groups] no rank keeps all of the group, or another one does */
    bool draws;                           /* training drops elements */
    bool *in_products;                    /* [n_parameters] some graph reads it otherwise than by look-ups */
    weft_save_place saves;
    bool visible; /* the host sees the device's memory */
    weft_plan_bytes bytes;
    weft_plan_answers answers; /* of plugins */
} weft_plan;

/* What a save of the run has: the base's weights, unless adapters stand on those of [model] path, which stay as they
 * are. What is trained of them is saved with an adapter then. */
static inline bool weft_plan_saves_base(const weft_plan *plan) {
    return plan->declared->n_adapters == 0 || plan->run->settings.model.start == WEFT_START_FRESH;
}

/* Losses are multiplied by a scale before their backward (run/loss_scale.h), and steps may end without an update. */
static inline bool weft_plan_scales(const weft_plan *plan) {
    return plan->dtype == WEFT_F16;
}

/* Frees what the plan holds; one that was never opened is fine. */
void weft_plan_close(weft_plan *self);

/* The plan of another rank as far as it is the same: it borrows the model, the layout, graphs and jobs, and has no
 * program, sums or holds of its own yet. weft_plan_drop_rank frees what was given to it of these. */
weft_plan weft_plan_as_rank(const weft_plan *self, int32_t rank);
void weft_plan_drop_rank(weft_plan *self);

/* Rows of the position tables: the longest leaf or the cache. */
int64_t weft_plan_table_rows(const weft_plan_spec *spec);

/* The larger one of the two, of a training and an evaluation program; 0 where there is neither. */
int32_t weft_plan_most_events(const weft_plan *self);
int32_t weft_plan_most_leaves(const weft_plan *self);
int32_t weft_plan_most_slots(const weft_plan *self);

#endif
