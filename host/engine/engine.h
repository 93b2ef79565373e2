/* host/engine/engine.h: model, layout, device, programs and buffers of one run, ready to execute.
 *
 * The engine is what `weft plan` prints and `weft train` runs: the same object, so a plan cannot drift from the run.
 * It is made in two steps: `prepare` decides everything and takes no memory of the device; `allocate` takes exactly
 * that. */
#ifndef WEFT_HOST_ENGINE_ENGINE_H
#define WEFT_HOST_ENGINE_ENGINE_H

#include "engine/account.h"
#include "engine/graphs.h"
#include "model/region.h"
#include "program/execute.h"
#include "ranks/post.h"

/* Small numbers that live on the device, in one buffer of FIXED memory. */
typedef struct weft_scalars {
    weft_slot_ref buffer;
    weft_ref losses;     /* fp64 per leaf that this rank takes to the end, in the order in which it does */
    weft_ref all_losses; /* the same of every rank, [world][most that one has]; losses itself where there is one rank */
    weft_ref nodes;      /* fp64 per grid cell of a unit's gradient, of all units; none where nothing is cut */
    weft_ref square_sums; /* fp64 per trained parameter */
    weft_ref count;       /* fp64 */
    weft_ref norm;        /* fp64 */
    weft_ref coefficient; /* fp32 */
    weft_ref skip;        /* int32 */
    weft_ref hp;          /* the optimizer's struct */
} weft_scalars;

/* What the engine takes from the device, to the byte. */
typedef struct weft_engine_bytes {
    int64_t line[WEFT_N_ACCOUNT_LINES];
    int64_t total;
    int64_t category[WEFT_N_MEMORY_CATEGORIES]; /* at the highest moment; with `spare` they add up to total */
    int64_t spare;                              /* gaps of the arena at that moment */
} weft_engine_bytes;

typedef struct weft_engine_spec {
    bool training;         /* a training program, gradients, optimizer state */
    int32_t evaluate_rows; /* leaves of evaluation; 0: no evaluation program */
    int32_t leaves;        /* of one optimizer step, all replicas together: R * A */
    int32_t rows;          /* micro_batch */
    int32_t n_lengths;
    int32_t lengths[WEFT_MAX_LENGTHS];
    /* Generation instead of the two above: rows is 1, and the graphs are made by host/session/generate.c. */
    int32_t cache_rows;  /* places of the key-value state; 0: no generation */
    int32_t prompt_rows; /* places of the longest FORWARD of generation */
} weft_engine_spec;

/* How a unit's sum is made (host/engine/sums.c). */
typedef struct weft_unit_sum {
    bool two_hops, loose; /* loose: in the order in which terms come */
    int32_t scope;        /* of the last hop */
    int32_t depth[2];     /* sums that wait at most, of each hop; the first of the last hop is the unit's gradient */
    int64_t partials[2];  /* elements from the start of engine->partials to the others */
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
    weft_price price;
    weft_coverage coverage;
    uint64_t identity;       /* of all ranks' programs together */
    weft_terms *terms;       /* of training */
    weft_unit_sum *sums;     /* [n_units], of training */
    weft_loss_place *losses; /* [program->leaves] */
    int64_t partials;        /* elements of the sums that wait */
    int32_t most_losses;     /* leaves that one rank takes to the end, at most */
} weft_stage;

enum { WEFT_HOLD_PARAMETERS, WEFT_HOLD_GRADIENTS, WEFT_HOLD_STATES, WEFT_N_HOLDS };

/* A region of this engine, for reading what other ranks keep of it (host/engine/fetch.c). */
typedef struct weft_fetcher {
    struct weft_engine *engine;
    int32_t what; /* WEFT_HOLD_PARAMETERS or WEFT_HOLD_STATES */
    weft_ref ref;
} weft_fetcher;

typedef struct weft_engine {
    const weft_run *run;
    weft_engine_spec spec;
    int32_t dtype; /* weft_dtype that the model computes in: [train] precision */
    weft_declared *declared;
    weft_layout *layout;
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_device_info device_info;
    const weft_optimizer_plugin *optimizer_plugin;
    weft_optimizer *optimizer;
    const weft_state_slot *states;
    int64_t n_states;

    weft_stage train, evaluate, generate; /* program NULL: not asked for */
    weft_engine_bytes bytes;              /* the plan */

    weft_platform *own_platform; /* NULL: the seat is in somebody else's */
    weft_ranks ranks;
    weft_peers peers; /* the same ranks, for files and failures */
    weft_post post;
    bool failed;                    /* something went wrong while ranks may have waited for one another */
    weft_hold *holds[WEFT_N_HOLDS]; /* what this rank keeps; gradients and states: of the trainable groups */
    bool *apart[WEFT_N_HOLDS];      /* [n_groups] no rank keeps all of the group, or another one does */

    weft_account account;
    weft_slot_ref parameters, gradients; /* what is kept of the parameters, and of the sums over leaves */
    weft_slot_ref partials;              /* sums that wait (weft_unit_sum) */
    weft_fetcher fetchers[1 + WEFT_MAX_STATES];
    weft_slot_ref state[WEFT_MAX_STATES];
    weft_slot_ref *tables;    /* [declared->n_tables] */
    weft_slot_ref ranges;     /* weft_range rows of all trainable groups */
    int64_t *group_ranges;    /* [n_trainable_groups + 1]: first row of each group */
    weft_slot_ref key_values; /* generation */
    weft_slot_ref logits;     /* generation: a row of the vocabulary */
    weft_scalars scalars;
    weft_slot_ref arena;
    weft_slot_ref compute;    /* the compute copy (host/engine/compute.h); empty in fp32 */
    weft_ref *parameter_refs; /* [n_parameters] masters, fp32 */
    weft_ref *compute_refs;   /* [n_parameters] what the graphs read: the copy of a matrix, or the master */
    int32_t *compute_dtypes;  /* [n_parameters] weft_dtype of it */
    bool *in_products;        /* [n_parameters] some graph reads it otherwise than by look-ups */
    uint64_t updates; /* that the optimizer has made: steps without those that were skipped. Belongs to its states: set
                             by load, by weft_checkpoint_restore and by each step. */
    int32_t stored_dtype; /* weft_dtype of the files that the parameters first came from; fp32 for a fresh start. What
                             [checkpoint] dtype = auto saves. Set by load and by weft_checkpoint_restore. */
} weft_engine;

/* Model, layout and device; graphs and programs by `spec` later. Enough for weft_model_info and names. */
weft_status weft_engine_open(weft_engine **out, const weft_run *run, weft_error *err);
/* The same in a seat of a platform, which must outlive the engine; NULL: in a platform of its own. */
weft_status weft_engine_open_at(weft_engine **out, const weft_run *run, const weft_seat *seat, weft_error *err);
/* Graphs, programs (checked, placed, priced) and the plan of bytes. */
weft_status weft_engine_prepare(weft_engine *engine, const weft_engine_spec *spec, weft_error *err);
/* Takes the planned memory and fills the fixed part of it. */
weft_status weft_engine_allocate(weft_engine *engine, weft_error *err);
/* Parameters from [model] path, or freshly initialised, as the configuration says, the compute copy of them, and
 * optimizer states of zeros. */
weft_status weft_engine_load(weft_engine *engine, weft_error *err);
void weft_engine_close(weft_engine *engine); /* NULL is fine */

/* Rows of the position tables: the longest leaf or the cache. */
int64_t weft_engine_table_rows(const weft_engine_spec *spec);

/* What this rank keeps of the parameters, and of an optimizer state, as regions. Reading what it does not keep is
 * collective. The engine is allocated. */
weft_region weft_engine_parameters(const weft_engine *engine);
weft_region weft_engine_state(const weft_engine *engine, int64_t state);

/* A planned slot of a program's event as the graphs take it; slot -1 gives an empty one. */
weft_slot_ref weft_engine_slot(const weft_engine *engine, const weft_program *program, int32_t slot);
/* Part of a region: `offset` bytes further. */
weft_ref weft_ref_at(weft_ref ref, int64_t offset);

#endif
