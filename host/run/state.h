/* host/run/state.h: what lives in a run: a plan (program/plan.h), device, ranks, and the memory that the plan named. */
#ifndef WEFT_HOST_RUN_STATE_H
#define WEFT_HOST_RUN_STATE_H

#include "run/account.h"
#include "run/choices.h"
#include "run/loss_scale.h"
#include "model/region.h"
#include "run/control_channel.h"
#include "run/ranks.h"

/* Small numbers that live on the device, in one buffer of FIXED memory. */
typedef struct weft_scalars {
    weft_slot_ref buffer;
    weft_ref losses;     /* fp64 per micro-batch that this rank takes to the end, in the order in which it does */
    weft_ref all_losses; /* the same of every rank, [world][most that one has]; losses itself where there is one rank */
    weft_ref nodes;      /* fp64 per grid cell of a unit's gradient, of all units; none where nothing is cut */
    weft_ref square_sums; /* fp64 per trained parameter */
    weft_ref count;       /* fp64 */
    weft_ref seed;        /* fp32, right behind the count: what losses are multiplied by, in fp16 */
    weft_ref norm;        /* fp64 */
    weft_ref coefficient; /* fp32 */
    weft_ref skip;        /* int32 */
    weft_ref hp;          /* the optimizer's struct */
    /* int64 per micro-batch of a training step: its first row in the stream; of models that drop elements */
    weft_ref first;
    weft_ref past; /* generation: int64: places that the key-value state holds */
} weft_scalars;

/* The kernels of NORM, in their order, and the rows of engine->extents that each goes through. */
enum {
    WEFT_NORM_OWN_CELLS, /* this rank's part of what is cut, a sum per grid cell */
    WEFT_NORM_OWNED,     /* tensors whose gradients this rank owns */
    WEFT_NORM_NODES,     /* what came from all ranks, to one sum per tensor */
    WEFT_NORM_WHOLE,     /* tensors that every rank has whole */
    WEFT_N_NORM_TABLES
};
typedef struct weft_norm_table {
    int64_t first, n;
    int64_t elements; /* of all rows together */
} weft_norm_table;

/* A region of this engine, for reading what other ranks keep of it (host/run/fetch.c). */
typedef struct weft_fetcher {
    struct weft_engine *engine;
    int32_t what; /* WEFT_HOLD_PARAMETERS, or a state's */
    weft_ref ref;
} weft_fetcher;

typedef struct weft_engine {
    weft_plan plan; /* what was decided before anything was taken */
    const weft_device_plugin *kernels;
    weft_device *device;
    weft_device_info device_info;
    weft_choices choices; /* of all ranks' devices; after run/opening.h */
    const weft_optimizer_plugin *optimizer_plugin;
    weft_optimizer *optimizer;

    weft_process_context *own_process_context; /* NULL: the rank span is in somebody else's */
    weft_ranks ranks;
    weft_process_group peers; /* the same ranks, for files and failures */
    weft_control_channel post;
    bool failed; /* something went wrong while ranks may have waited for one another */

    weft_account account;
    weft_slot_ref parameters, gradients; /* what is kept of the parameters, and of the sums over micro-batches */
    weft_slot_ref partials;              /* sums that wait (weft_unit_sum) */
    weft_fetcher fetchers[1 + WEFT_MAX_STATES];
    weft_slot_ref state[WEFT_MAX_STATES];
    weft_slot_ref *tables;       /* [declared->n_tables] */
    weft_slot_ref ranges;        /* weft_range rows of all trainable groups */
    int64_t *group_ranges;       /* [n_trainable_groups + 1]: first row of each group */
    weft_update_region *regions; /* [n_regions] groups that this rank updates a part of, in their order */
    int32_t n_regions;
    weft_slot_ref extents; /* weft_extent rows (run/norm_extents.h) */
    weft_norm_table norm_tables[WEFT_N_NORM_TABLES];
    weft_slot_ref key_values; /* generation */
    weft_slot_ref logits;     /* generation: a row of the vocabulary */
    weft_scalars scalars;
    weft_slot_ref arena;
    weft_slot_ref compute;    /* the compute copy (host/run/compute.h); empty in fp32 */
    weft_ref *parameter_refs; /* [n_parameters] as they are stored: masters, or packed or trained without one */
    weft_ref *compute_refs;   /* [n_parameters] what the graphs read: the copy of a matrix, or the master */
    int32_t *compute_dtypes;  /* [n_parameters] weft_dtype of it */
    uint64_t updates; /* that the optimizer has made: steps without those that were skipped. Belongs to its states: set
                             by load, by weft_checkpoint_restore and by each step. */
    weft_loss_scale scale; /* in fp16. Set by load, by weft_checkpoint_restore and by each step */
    int32_t stored_dtype;  /* weft_dtype of the files that the parameters first came from; fp32 for a fresh start. What
                             [checkpoint] dtype = auto saves. Set by load and by weft_checkpoint_restore. */
} weft_engine;

/* A planned slot of a program's instruction as the graphs take it; slot -1 gives an empty one. */
weft_slot_ref weft_engine_slot(const weft_engine *engine, const weft_program *program, int32_t slot);

#endif
